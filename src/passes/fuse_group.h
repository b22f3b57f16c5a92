// A group of nodes that may become one kernel: its iteration space, and where in storage each member reads and writes.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "src/graph/graph.h"
#include "src/ops/pointwise.h"

namespace spool {

class FuseGroup {
 public:
  struct Member {
    std::int32_t node = -1;
    Lowered lowered;  ///< strides and `reduced` over the group's dimensions; its own sizes are not kept
  };

  /// `root` gives, for each value, the first one of the storage that it is a content of.
  FuseGroup(std::int32_t node, Lowered lowered, const std::vector<ValueId>& root);

  /// Takes the members of `other` in, if the two fit together in one kernel; else changes nothing and returns false. Whether that
  /// makes a cycle is for the caller to ask.
  bool merge(FuseGroup& other);

  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  /// How many leading dimensions rows keep; all of them where nothing is reduced along a part.
  std::int32_t kept() const { return kept_ < 0 ? static_cast<std::int32_t>(sizes_.size()) : kept_; }
  std::vector<Member>& members() { return members_; }
  const std::vector<Member>& members() const { return members_; }
  bool reduces() const { return reduces_; }
  std::int64_t points() const;

 private:
  /// How the group touches one storage.
  struct Storage {
    std::int64_t offset = 0;
    std::vector<std::int64_t> strides;
    bool several = false;  ///< at several places
    bool produced = false;  ///< a member writes it
    bool complete = false;  ///< what is written is only known when all rows are done
  };
  struct Fit;

  bool find_fit(const FuseGroup& other, Fit& fit) const;
  bool check_fit(const FuseGroup& other, Fit& fit) const;
  void restride(const std::vector<std::vector<std::int32_t>>& pieces, const std::vector<std::int64_t>& sizes);
  void note(const LoweredPlace& place, bool produced, bool complete, const std::vector<ValueId>& root);

  std::vector<std::int64_t> sizes_;
  std::int32_t kept_ = -1;  ///< -1: not decided
  std::vector<Member> members_;
  std::unordered_map<ValueId, Storage> storages_;
  std::size_t instructions_ = 0;
  bool reduces_ = false;
};

}  // namespace spool
