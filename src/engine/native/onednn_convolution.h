// Convolutions through oneDNN, in its layouts. Where it was not there at build time (onednn_missing.cpp) there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "src/passes/layout.h"
#include "src/tape/geometry.h"

namespace spool::native {

/// The primitives of one convolution. Immutable, shared by all plans that have the same; calls take no memory for data.
class OnednnConvolution {
 public:
  virtual ~OnednnConvolution() = default;

  virtual ConvolutionLayout layout() const = 0;

  /// What a call reads and writes; null where the use has none. `workspace`: as much as the layout says, aligned to 64 bytes.
  struct Operands {
    void* input = nullptr;            ///< backward: read for the weights' gradient
    void* weight = nullptr;
    void* bias = nullptr;             ///< backward: its gradient, written
    void* output = nullptr;           ///< backward: its gradient, read
    void* input_gradient = nullptr;
    void* weight_gradient = nullptr;
    void* workspace = nullptr;
  };
  virtual void run(const Operands& operands) const = 0;
};

/// The process's one for that use and the number of threads that the caller has; null where oneDNN has no fast kernel for it.
/// Thread-safe.
std::shared_ptr<const OnednnConvolution> onednn_convolution(const ConvolutionUse& use);

/// A copy between two layouts, each a geometry of sizes [N, C, spatial…] or, if its block is not 1, [N, C / block, spatial…, block].
class OnednnReorder {
 public:
  virtual ~OnednnReorder() = default;
  virtual void run(const void* from, void* to) const = 0;
};

/// Null where oneDNN can't. Thread-safe.
std::shared_ptr<const OnednnReorder> onednn_reorder(const Geometry& from, std::int64_t from_block, const Geometry& to,
                                                    std::int64_t to_block);

}  // namespace spool::native
