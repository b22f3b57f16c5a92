// Stands in for onednn_convolution.cpp where oneDNN is missing: PyTorch's own kernels serve.
#include "src/engine/native/onednn_convolution.h"

namespace spool::native {

std::shared_ptr<const OnednnConvolution> onednn_convolution(const ConvolutionUse& /*use*/) { return nullptr; }

std::shared_ptr<const OnednnReorder> onednn_reorder(const Geometry& /*from*/, std::int64_t /*from_block*/, const Geometry& /*to*/,
                                                    std::int64_t /*to_block*/) {
  return nullptr;
}

}  // namespace spool::native
