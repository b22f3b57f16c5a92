// Graphs of made-up ops for tests of the core, written by hand in few words.
#pragma once

#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace spool::test {

inline Geometry f32(std::vector<std::int64_t> sizes) {
  Geometry geometry;
  geometry.sizes = std::move(sizes);
  geometry.strides.assign(geometry.sizes.size(), 1);
  for (std::size_t d = geometry.sizes.size(); d-- > 1;) {
    geometry.strides[d - 1] = geometry.strides[d] * geometry.sizes[d];
  }
  return geometry;
}

struct SmallGraph {
  Graph graph;

  ValueId value(const Geometry& geometry) {
    graph.values.push_back({geometry, geometry.storage_bytes()});
    return static_cast<ValueId>(graph.values.size()) - 1;
  }

  ValueId input(const Geometry& geometry) {
    const ValueId id = value(geometry);
    graph.inputs.push_back({next_slot++, id});
    return id;
  }

  void output(ValueId id, std::int32_t input = -1) { graph.outputs.push_back({next_slot++, id, input}); }

  Arg read(ValueId id) const {
    Arg arg;
    arg.tag = Tag::Tensor;
    arg.value = id;
    arg.geometry = graph.values.at(static_cast<std::size_t>(id)).geometry;
    return arg;
  }
  Arg read(ValueId id, const Geometry& geometry) const {
    Arg arg = read(id);
    arg.geometry = geometry;
    return arg;
  }
  Arg write(Arg arg) const {
    arg.writes = true;
    return arg;
  }
  Arg number() {
    Arg arg;
    arg.tag = Tag::Number;
    arg.parameter = graph.numbers++;
    return arg;
  }

  /// A node with one fresh result of that geometry; returns the result.
  ValueId make(const Op& op, std::vector<Arg> args, const Geometry& result) {
    const ValueId id = value(result);
    graph.nodes.push_back({.op = &op, .args = std::move(args), .results = {id}, .fresh = 1, .location = {}});
    return id;
  }

  /// A node that mutates what its args write to, with no fresh result; returns the first new value.
  ValueId mutate(const Op& op, std::vector<Arg> args) {
    Node node{.op = &op, .args = std::move(args), .results = {}, .fresh = 0, .location = {}};
    for (const ValueId old : mutated(node)) {
      node.results.push_back(value(graph.values[static_cast<std::size_t>(old)].geometry));
    }
    graph.nodes.push_back(node);
    return node.results.front();
  }

  std::uint32_t next_slot = 0;
};

inline Op make_op(const std::string& name) {
  Op op;
  op.name = name;
  return op;
}

inline const Op add = make_op("test::add");
inline const Op neg = make_op("test::neg");
inline const Op add_ = [] {
  Op op = make_op("test::add_");
  op.mutates = {1, 0, 0};
  op.has_mutation = true;
  return op;
}();
inline const Op check_ = [] {
  Op op = make_op("test::check");
  op.effect = true;
  return op;
}();

}  // namespace spool::test
