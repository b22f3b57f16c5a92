#include "src/graph/serialise.h"

#include <cstring>
#include <type_traits>
#include <unordered_map>

#include "src/base/error.h"

namespace spool {
namespace {

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  static constexpr bool reads = false;
  explicit Writer(std::span<const LocationPtr> locations) {
    for (std::size_t i = 0; i < locations.size(); ++i) {
      places_.emplace(locations[i].get(), static_cast<std::int64_t>(i));
    }
  }

  std::string take() { return std::move(bytes_); }

  template <Plain T>
  void item(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void item(const std::string& text) {
    item(text.size());
    bytes_.append(text);
  }
  void op(const Op* const& op) { item(op->name); }
  void location(const LocationPtr& location) {
    const auto place = places_.find(location.get());
    item(place != places_.end() ? place->second : std::int64_t{-1});
  }
  template <class T>
  void size(const std::vector<T>& list) {
    item(list.size());
  }

 private:
  std::string bytes_;
  std::unordered_map<const Location*, std::int64_t> places_;
};

class Reader {
 public:
  static constexpr bool reads = true;
  Reader(std::string_view bytes, const std::function<const Op*(std::string_view)>& find_op,
         std::span<const LocationPtr> locations)
      : bytes_(bytes), find_op_(find_op), locations_(locations) {}

  bool done() const { return bytes_.empty(); }

  template <Plain T>
  void item(T& value) {
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
  }
  void item(std::string& text) {
    std::size_t length = 0;
    item(length);
    text = take(length);
  }
  void op(const Op*& op) {
    std::string name;
    item(name);
    op = find_op_(name);
    SPOOL_CHECK(op != nullptr, Value, "[deserialise] expected ops that this process knows, got '", name, "'");
  }
  void location(LocationPtr& location) {
    std::int64_t place = -1;
    item(place);
    SPOOL_CHECK(place < static_cast<std::int64_t>(locations_.size()), Value, "[deserialise] expected a location below ",
                locations_.size(), ", got ", place);
    location = place < 0 ? nullptr : locations_[static_cast<std::size_t>(place)];
  }
  template <class T>
  void size(std::vector<T>& list) {
    std::size_t length = 0;
    item(length);
    // Each element takes at least a byte, so that a torn length can't ask for more memory than the file is long.
    SPOOL_CHECK(length <= bytes_.size(), Value, "[deserialise] expected a list inside the file, got ", length, " elements");
    list.resize(length);
  }

 private:
  std::string_view take(std::size_t length) {
    SPOOL_CHECK(length <= bytes_.size(), Value, "[deserialise] expected ", length, " more bytes, got ", bytes_.size());
    const std::string_view taken = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return taken;
  }

  std::string_view bytes_;
  const std::function<const Op*(std::string_view)>& find_op_;
  std::span<const LocationPtr> locations_;
};

/// What to do with a T while writing, and with the T to fill while reading: one walk serves both directions.
template <class Stream, class T>
using As = std::conditional_t<Stream::reads, T&, const T&>;

template <class Stream, class T, class Each>
void list(Stream& stream, T& items, Each&& each) {
  stream.size(items);
  for (auto& item : items) {
    each(item);
  }
}

template <class Stream, class T>
void list(Stream& stream, T& items) {
  list(stream, items, [&](auto& item) { stream.item(item); });
}

template <class Stream>
void walk(Stream& stream, As<Stream, Geometry> geometry) {
  stream.item(geometry.dtype);
  stream.item(geometry.itemsize);
  stream.item(geometry.offset);
  list(stream, geometry.sizes);
  list(stream, geometry.strides);
}

template <class Stream>
void walk(Stream& stream, As<Stream, Arg> arg) {
  stream.item(arg.tag);
  walk(stream, arg.geometry);
  stream.item(arg.value);
  stream.item(arg.writes);
  stream.item(arg.number.kind);
  stream.item(arg.number.tensor);
  stream.item(arg.number.wrapped);
  stream.item(arg.number.dtype);
  stream.item(arg.parameter);
  stream.item(arg.integer);
  stream.item(arg.real);
  list(stream, arg.list);
  list(stream, arg.reals);
  list(stream, arg.elements, [&](auto& element) { walk(stream, element); });
  stream.item(arg.text);
}

template <class Stream>
void walk(Stream& stream, As<Stream, Kernel> kernel) {
  stream.item(kernel.rank);
  stream.item(kernel.kept);
  stream.item(kernel.numbers);
  list(stream, kernel.accesses, [&](auto& access) {
    stream.item(access.dtype);
    stream.item(access.store);
  });
  list(stream, kernel.body, [&](auto& instruction) {
    stream.item(instruction.op);
    stream.item(instruction.dtype);
    for (auto& operand : instruction.operands) {
      stream.item(operand);
    }
    stream.item(instruction.immediate);
  });
  list(stream, kernel.segments, [&](auto& segment) {
    list(stream, segment.sizes);
    list(stream, segment.places, [&](auto& place) {
      stream.item(place.operand);
      stream.item(place.result);
      stream.item(place.offset);
      list(stream, place.strides);
    });
    list(stream, segment.numbers);
  });
}

void kernel(Writer& stream, const KernelPtr& kernel) {
  stream.item(kernel != nullptr);
  if (kernel != nullptr) {
    walk(stream, *kernel);
  }
}

void kernel(Reader& stream, KernelPtr& kernel) {
  bool present = false;
  stream.item(present);
  if (present) {
    const auto read = std::make_shared<Kernel>();
    walk(stream, *read);
    kernel = read;
  }
}

template <class Stream>
void walk(Stream& stream, As<Stream, Graph> graph) {
  list(stream, graph.values, [&](auto& value) {
    walk(stream, value.geometry);
    stream.item(value.nbytes);
  });
  list(stream, graph.nodes, [&](auto& node) {
    stream.op(node.op);
    list(stream, node.args, [&](auto& arg) { walk(stream, arg); });
    list(stream, node.results);
    stream.item(node.fresh);
    stream.location(node.location);
    kernel(stream, node.kernel);
  });
  list(stream, graph.inputs, [&](auto& input) {
    stream.item(input.slot);
    stream.item(input.value);
  });
  list(stream, graph.outputs, [&](auto& output) {
    stream.item(output.slot);
    stream.item(output.value);
    stream.item(output.input);
  });
  stream.item(graph.numbers);
  stream.item(graph.generators);
}

}  // namespace

std::string serialise(const Graph& graph, std::span<const LocationPtr> locations) {
  Writer writer(locations);
  walk(writer, graph);
  return writer.take();
}

Graph deserialise(std::string_view bytes, const std::function<const Op*(std::string_view)>& find_op,
                  std::span<const LocationPtr> locations) {
  Reader reader(bytes, find_op, locations);
  Graph graph;
  walk(reader, graph);
  SPOOL_CHECK(reader.done(), Value, "[deserialise] expected nothing after the graph");
  verify(graph);
  return graph;
}

}  // namespace spool
