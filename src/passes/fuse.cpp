#include "src/passes/fuse.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <string>

#include "src/passes/fuse_emit.h"
#include "src/passes/fuse_group.h"

namespace spool {
namespace {

/// How many groups a search for a cycle looks at before it gives up and says that there is one.
constexpr int search_budget = 2000;

template <class List, class Index>
auto& at(List& list, Index i) {
  return list[static_cast<std::size_t>(i)];
}

/// Which node has to come before which: values it reads, and readers of a value before the node that overwrites it.
struct Order {
  std::vector<std::vector<std::int32_t>> before;  ///< per node
  std::vector<std::vector<std::int32_t>> after;
  std::vector<std::int32_t> producer;             ///< per value; -1 for an input

  explicit Order(const Graph& graph) : before(graph.nodes.size()), after(graph.nodes.size()), producer(graph.values.size(), -1) {
    std::vector<std::vector<std::int32_t>> readers(graph.values.size());
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
      const Node& node = graph.nodes[static_cast<std::size_t>(i)];
      const auto add = [&](std::int32_t first) {
        if (first >= 0 && first != i) {
          before[static_cast<std::size_t>(i)].push_back(first);
        }
      };
      for_each_tensor(node.args, [&](const Arg& arg) { add(producer[static_cast<std::size_t>(arg.value)]); });
      for (const ValueId old : mutated(node)) {
        for (const std::int32_t reader : readers[static_cast<std::size_t>(old)]) {
          add(reader);
        }
      }
      for_each_tensor(node.args, [&](const Arg& arg) { readers[static_cast<std::size_t>(arg.value)].push_back(i); });
      for (const ValueId result : node.results) {
        if (result != no_value) {
          producer[static_cast<std::size_t>(result)] = i;
        }
      }
      auto& all = before[static_cast<std::size_t>(i)];
      std::sort(all.begin(), all.end());
      all.erase(std::unique(all.begin(), all.end()), all.end());
      for (const std::int32_t first : all) {
        after[static_cast<std::size_t>(first)].push_back(i);
      }
    }
  }
};

/// Whether a node makes 0, 1, 2, … as int64, one after the other.
bool counts_up(const Node& node) {
  const auto is = [&](std::size_t i, std::int64_t number) {
    return is_constant(node.args[i]) && node.args[i].number.kind == NumberKind::Int && node.args[i].integer == number;
  };
  return node.op->name == "aten::arange.start_step" && is(0, 0) && is(2, 1) && node.args[3].tag == Tag::Int &&
         node.args[3].integer == static_cast<std::int64_t>(DType::Int64);
}

class Fuser {
 public:
  Fuser(Graph graph, FuseMode mode)
      : graph_(std::move(graph)),
        mode_(mode),
        order_(graph_),
        parent_(graph_.nodes.size()),
        depth_(graph_.nodes.size(), 0),
        seen_(graph_.nodes.size(), 0),
        nodes_of_(graph_.nodes.size()),
        groups_(graph_.nodes.size()),
        context_{graph_, std::vector<ValueId>(graph_.values.size()), std::vector<std::uint8_t>(graph_.values.size(), 0),
                 std::vector<std::uint8_t>(graph_.values.size(), 0), std::vector<std::uint8_t>(graph_.values.size(), 0)} {
    std::iota(parent_.begin(), parent_.end(), 0);
    std::iota(context_.root.begin(), context_.root.end(), 0);
  }

  Graph run() {
    prepare();
    std::vector<std::int32_t> last_reader(graph_.values.size(), -1);
    for (std::int32_t i = 0; i < count(); ++i) {
      if (at(groups_, i).has_value()) {
        join(i, last_reader);
      }
    }
    return rebuild();
  }

 private:
  std::int32_t count() const { return static_cast<std::int32_t>(graph_.nodes.size()); }

  /// The group that a node is in, named by one of its nodes.
  std::int32_t find(std::int32_t node) {
    while (at(parent_, node) != node) {
      at(parent_, node) = at(parent_, at(parent_, node));
      node = at(parent_, node);
    }
    return node;
  }

  void prepare() {
    for (std::int32_t i = 0; i < count(); ++i) {
      const Node& node = at(graph_.nodes, i);
      at(nodes_of_, i) = {i};
      if (counts_up(node)) {
        at(context_.counts, node.results[0]) = 1;
      }
      for (const std::int32_t first : at(order_.before, i)) {
        at(depth_, i) = std::max(at(depth_, i), at(depth_, first) + 1);
      }
      const std::vector<ValueId> old = mutated(node);
      for (std::size_t m = 0; m < old.size(); ++m) {
        at(context_.root, node.results[static_cast<std::size_t>(node.fresh) + m]) = at(context_.root, old[m]);
      }
      if (node.op == &ops::empty) {
        at(context_.undefined, node.results[0]) = 1;
      }
      if (std::optional<Lowered> lowered = lower(graph_, node)) {
        at(groups_, i).emplace(i, std::move(*lowered), context_.root);
      }
    }
  }

  /// Tries to put a node into the groups that make what it reads, then into those that read the same.
  void join(std::int32_t node, std::vector<std::int32_t>& last_reader) {
    // Copies: members move when groups merge.
    std::vector<std::int32_t> candidates;
    std::vector<ValueId> read;
    for (const LoweredPlace& place : at(groups_, node)->members().front().lowered.reads) {
      read.push_back(place.value);
      if (const std::int32_t producer = at(order_.producer, place.value); producer >= 0) {
        candidates.push_back(producer);
      }
    }
    for (const LoweredWrite& write : at(groups_, node)->members().front().lowered.writes) {
      if (write.old != no_value && at(order_.producer, write.old) >= 0) {
        candidates.push_back(at(order_.producer, write.old));
      }
    }
    for (const ValueId value : read) {
      if (at(last_reader, value) >= 0) {
        candidates.push_back(at(last_reader, value));
      }
      at(last_reader, value) = node;
    }
    for (const std::int32_t candidate : candidates) {
      const std::int32_t a = find(candidate);
      const std::int32_t b = find(node);
      if (a != b && at(groups_, a).has_value() && !path_between(a, b)) {
        unite(a, b);
      }
    }
  }

  /// Whether one of two groups depends on the other by way of a third.
  bool path_between(std::int32_t a, std::int32_t b) {
    if (at(depth_, a) > at(depth_, b)) {
      std::swap(a, b);
    }
    if (at(depth_, a) == at(depth_, b)) {
      return false;
    }
    ++search_;
    int budget = search_budget;
    std::vector<std::int32_t> open{b};
    while (!open.empty()) {
      const std::int32_t group = open.back();
      open.pop_back();
      for (const std::int32_t member : at(nodes_of_, group)) {
        for (const std::int32_t first : at(order_.before, member)) {
          const std::int32_t next = find(first);
          if (next == a && group != b) {
            return true;
          }
          if (next == group || at(seen_, next) == search_ || at(depth_, next) <= at(depth_, a)) {
            continue;
          }
          at(seen_, next) = search_;
          open.push_back(next);
          if (--budget == 0) {
            return true;
          }
        }
      }
    }
    return false;
  }

  void unite(std::int32_t a, std::int32_t b) {
    // The larger space takes the smaller one in.
    if (at(groups_, a)->points() < at(groups_, b)->points()) {
      std::swap(a, b);
    }
    if (!at(groups_, a)->merge(*at(groups_, b))) {
      return;
    }
    at(groups_, b).reset();
    at(parent_, b) = a;
    auto& into = at(nodes_of_, a);
    into.insert(into.end(), at(nodes_of_, b).begin(), at(nodes_of_, b).end());
    at(nodes_of_, b).clear();
    at(depth_, a) = std::max(at(depth_, a), at(depth_, b));
    deepen(a);
  }

  /// Restores: what comes after a group is deeper than it.
  void deepen(std::int32_t group) {
    std::vector<std::int32_t> open{group};
    while (!open.empty()) {
      const std::int32_t current = open.back();
      open.pop_back();
      for (const std::int32_t member : at(nodes_of_, current)) {
        for (const std::int32_t later : at(order_.after, member)) {
          const std::int32_t next = find(later);
          if (next != current && at(depth_, next) <= at(depth_, current)) {
            at(depth_, next) = at(depth_, current) + 1;
            open.push_back(next);
          }
        }
      }
    }
  }

  /// Values that a group makes and that something else uses.
  void find_needed() {
    const auto need = [&](ValueId value, std::int32_t by) {
      const std::int32_t producer = at(order_.producer, value);
      if (producer >= 0 && (by < 0 || find(producer) != find(by))) {
        at(context_.needed, value) = 1;
      }
    };
    for (std::int32_t i = 0; i < count(); ++i) {
      for_each_tensor(at(graph_.nodes, i).args, [&](const Arg& arg) { need(arg.value, i); });
    }
    for (const GraphOutput& output : graph_.outputs) {
      need(output.value, -1);
    }
  }

  struct Made {
    Node node;
    std::size_t from = 0;  ///< how many nodes it stands for
    std::shared_ptr<Kernel> kernel;  ///< while segments are added
  };

  Graph rebuild() {
    find_needed();
    std::map<std::int32_t, Made> made;  // by group
    for (std::int32_t i = 0; i < count(); ++i) {
      if (find(i) == i && at(groups_, i).has_value()) {
        Node node = make_kernel(*at(groups_, i), context_);
        if (!node.results.empty()) {
          made.emplace(i, Made{std::move(node), at(nodes_of_, i).size(), nullptr});
        }
      }
    }
    unite_equal(made);
    std::vector<Node> nodes;
    nodes.reserve(graph_.nodes.size());
    for (const std::int32_t group : sorted()) {
      const auto kernel = made.find(group);
      if (kernel != made.end() && (kernel->second.from > 1 || mode_ == FuseMode::Always)) {
        nodes.push_back(std::move(kernel->second.node));
        continue;
      }
      for (const std::int32_t node : at(nodes_of_, group)) {
        nodes.push_back(std::move(at(graph_.nodes, node)));
      }
    }
    graph_.nodes = std::move(nodes);
    return std::move(graph_);
  }

  /// Groups of the same program that do not depend on each other become one.
  void unite_equal(std::map<std::int32_t, Made>& made) {
    // A lone copy is the library's.
    const auto moves_only = [&](std::int32_t group) {
      const auto& members = at(groups_, group)->members();
      return members.size() == 1 && members.front().lowered.copies && !members.front().lowered.reads.empty();
    };
    // Those on which nothing depends, as updates of parameters, can't depend on each other; nor can those of equal depth.
    std::map<std::pair<std::string, std::int32_t>, std::int32_t> first;
    for (auto it = made.begin(); it != made.end();) {
      const std::int32_t group = it->first;
      const bool last = std::all_of(at(nodes_of_, group).begin(), at(nodes_of_, group).end(), [&](std::int32_t member) {
        return std::all_of(at(order_.after, member).begin(), at(order_.after, member).end(),
                           [&](std::int32_t next) { return find(next) == group; });
      });
      if (moves_only(group) && mode_ != FuseMode::Always) {
        ++it;
        continue;
      }
      const auto [found, added] = first.try_emplace({text(*it->second.node.kernel), last ? -1 : at(depth_, group)}, group);
      if (added) {
        ++it;
        continue;
      }
      Made& target = made.at(found->second);
      if (target.kernel == nullptr) {
        target.kernel = std::make_shared<Kernel>(*target.node.kernel);
        target.node.kernel = target.kernel;
      }
      add_segments(target.node, *target.kernel, it->second.node);
      target.from += it->second.from;
      at(parent_, group) = found->second;
      auto& into = at(nodes_of_, found->second);
      into.insert(into.end(), at(nodes_of_, group).begin(), at(nodes_of_, group).end());
      at(nodes_of_, group).clear();
      it = made.erase(it);
    }
  }

  /// Groups in an order that respects what comes before what, otherwise that of the program's last member of each.
  std::vector<std::int32_t> sorted() {
    std::vector<std::int32_t> waits(graph_.nodes.size(), 0);
    std::vector<std::int32_t> place(graph_.nodes.size(), -1);
    for (std::int32_t i = 0; i < count(); ++i) {
      const std::int32_t group = find(i);
      at(place, group) = std::max(at(place, group), i);
      for (const std::int32_t first : at(order_.before, i)) {
        at(waits, group) += find(first) != group ? 1 : 0;
      }
    }
    using Entry = std::pair<std::int32_t, std::int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (std::int32_t i = 0; i < count(); ++i) {
      if (find(i) == i) {
        std::sort(at(nodes_of_, i).begin(), at(nodes_of_, i).end());
        if (at(waits, i) == 0) {
          ready.emplace(at(place, i), i);
        }
      }
    }
    std::vector<std::int32_t> result;
    while (!ready.empty()) {
      const std::int32_t group = ready.top().second;
      ready.pop();
      result.push_back(group);
      for (const std::int32_t member : at(nodes_of_, group)) {
        for (const std::int32_t later : at(order_.after, member)) {
          const std::int32_t next = find(later);
          if (next != group && --at(waits, next) == 0) {
            ready.emplace(at(place, next), next);
          }
        }
      }
    }
    return result;
  }

  Graph graph_;
  FuseMode mode_;
  Order order_;
  std::vector<std::int32_t> parent_;
  std::vector<std::int32_t> depth_;
  std::vector<std::int32_t> seen_;
  std::int32_t search_ = 0;
  std::vector<std::vector<std::int32_t>> nodes_of_;  ///< per group
  std::vector<std::optional<FuseGroup>> groups_;     ///< per group that can become a kernel
  FuseContext context_;
};

}  // namespace

Graph fuse(Graph graph, FuseMode mode) { return Fuser(std::move(graph), mode).run(); }

}  // namespace spool
