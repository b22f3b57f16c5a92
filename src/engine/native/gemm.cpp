#include "src/engine/native/gemm.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

// BLAS's own interface, which PyTorch's library exports: column-major matrices, everything by address.
extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha, const float* a,
            const int* lda, const float* b, const int* ldb, const float* beta, float* c, const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c, const int* ldc);
}

namespace spool::native {
namespace {

void gemm(const char* transa, const char* transb, const int* m, const int* n, const int* k, float alpha, const float* a,
          const int* lda, const float* b, const int* ldb, float beta, float* c, const int* ldc) {
  sgemm_(transa, transb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}

void gemm(const char* transa, const char* transb, const int* m, const int* n, const int* k, double alpha, const double* a,
          const int* lda, const double* b, const int* ldb, double beta, double* c, const int* ldc) {
  dgemm_(transa, transb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}

/// A matrix as BLAS wants to hear of it.
struct Matrix {
  at::Tensor tensor;
  char trans = 'n';  ///< 'n': rows lie one after the other, 't': columns do
  int leading = 1;   ///< elements from one row (column) to the next
};

bool fits(std::int64_t number) { return number > 0 && number <= std::numeric_limits<int>::max(); }

/// ATen's choice: a matrix with one row or column counts as lying by rows if it can.
std::optional<Matrix> matrix(at::Tensor tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (const std::size_t along : {1U, 0U}) {
    const std::int64_t leading = strides[1 - along];
    if (strides[along] == 1 && leading >= std::max<std::int64_t>(1, sizes[along]) && fits(leading)) {
      return Matrix{std::move(tensor), along == 1 ? 'n' : 't', static_cast<int>(leading)};
    }
  }
  return std::nullopt;
}

/// How to fill the result before a product is added to it.
struct Bias {
  at::Tensor tensor;
  bool row = false;  ///< one row for all, else a whole matrix that lies as the result does
};

template <class T>
class GemmStep final : public Step {
 public:
  GemmStep(const Node& node, Matrix a, Matrix b, std::optional<Bias> bias, std::array<Arg, 2> scales, at::Tensor result)
      : Step(node),
        a_(std::move(a)),
        b_(std::move(b)),
        bias_(std::move(bias)),
        scales_(std::move(scales)),
        result_(std::move(result)),
        m_(static_cast<int>(result_.size(1))),
        n_(static_cast<int>(result_.size(0))),
        k_(static_cast<int>(a_.tensor.size(1))) {}

  void run(RunState& state) override {
    T beta = 0;
    T alpha = 1;
    T* const c = result_.mutable_data_ptr<T>();
    if (bias_.has_value()) {
      beta = number(state, scales_[0]);
      alpha = number(state, scales_[1]);
      if (beta != 0) {
        fill(c);
      }
    }
    // Row-major C = A B is column-major C' = B' A'.
    gemm(&b_.trans, &a_.trans, &m_, &n_, &k_, alpha, b_.tensor.const_data_ptr<T>(), &b_.leading, a_.tensor.const_data_ptr<T>(),
         &a_.leading, beta, c, &m_);
  }

 private:
  static T number(const RunState& state, const Arg& arg) {
    const Number& value = state.args.numbers[static_cast<std::size_t>(arg.parameter)];
    return arg.number.kind == NumberKind::Double ? static_cast<T>(value.real) : static_cast<T>(value.integer);
  }

  void fill(T* c) const {
    const T* from = bias_->tensor.const_data_ptr<T>();
    const auto row = static_cast<std::size_t>(m_) * sizeof(T);
    if (!bias_->row) {
      std::memcpy(c, from, row * static_cast<std::size_t>(n_));
      return;
    }
    for (int i = 0; i < n_; ++i) {
      std::memcpy(c + static_cast<std::ptrdiff_t>(i) * m_, from, row);
    }
  }

  Matrix a_;
  Matrix b_;
  std::optional<Bias> bias_;
  std::array<Arg, 2> scales_;  ///< beta, alpha
  at::Tensor result_;
  int m_;  ///< of the transposed product, as k
  int n_;
  int k_;
};

bool plain_number(const Arg& arg) {
  return arg.tag == Tag::Number && arg.parameter >= 0 && !arg.number.tensor && arg.number.kind != NumberKind::Complex;
}

std::optional<Bias> bias_of(at::Tensor tensor, const at::Tensor& result) {
  if (!tensor.is_contiguous()) {
    return std::nullopt;
  }
  const bool row = tensor.dim() == 1 && tensor.size(0) == result.size(1);
  if (!row && tensor.sizes() != result.sizes()) {
    return std::nullopt;
  }
  return Bias{std::move(tensor), row};
}

}  // namespace

std::unique_ptr<Step> gemm_step(const Node& node, const aten::AtenCall::Operand& operand, const at::Tensor& result) {
  const bool add = node.op->name == "aten::addmm";
  if (!add && node.op->name != "aten::mm") {
    return nullptr;
  }
  const at::ScalarType type = result.scalar_type();
  const bool single = type == at::kFloat;
  // ATen takes another way for float32 where that was allowed to be less precise.
  const at::Float32Precision allowed = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  const bool precise = allowed != at::Float32Precision::BF16 && allowed != at::Float32Precision::TF32;
  if ((!single && type != at::kDouble) || (single && !precise) || !result.is_contiguous() || !fits(result.size(0)) ||
      !fits(result.size(1)) || result.size(1) == 1) {  // a single column is a row to ATen, and multiplied the other way round
    return nullptr;
  }
  const std::size_t first = add ? 1 : 0;
  auto a = matrix(operand(node.args[first]));
  auto b = matrix(operand(node.args[first + 1]));
  if (!a.has_value() || !b.has_value() || !fits(a->tensor.size(1))) {
    return nullptr;
  }
  std::optional<Bias> bias;
  std::array<Arg, 2> scales;
  if (add) {
    bias = bias_of(operand(node.args[0]), result);
    scales = {node.args[3], node.args[4]};
    if (!bias.has_value() || !plain_number(scales[0]) || !plain_number(scales[1])) {
      return nullptr;
    }
  }
  const auto make = [&]<class T>(T /*type*/) -> std::unique_ptr<Step> {
    return std::make_unique<GemmStep<T>>(node, std::move(*a), std::move(*b), std::move(bias), std::move(scales), result);
  };
  return single ? make(float{}) : make(double{});
}

}  // namespace spool::native
