#include "src/engine/native/codegen.h"

#include <llvm/IR/Verifier.h>

#include <algorithm>
#include <functional>

#include "src/base/error.h"
#include "src/engine/native/codegen_ops.h"
#include "src/engine/native/jit.h"

namespace spool::native {
namespace {

using llvm::Value;

/// Emits one function.
class Function {
 public:
  Function(const Form& form, const std::vector<Level>& levels, llvm::Module& module, jit::Symbols& symbols, const char* name)
      : form_(form),
        body_(form.program.body),
        levels_(levels),
        b_(module.getContext()),
        ops_(b_, symbols),
        memo_(body_.size()),
        module_(module) {
    auto& context = module.getContext();
    llvm::Type* pointer = llvm::PointerType::getUnqual(context);
    function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {pointer}, false), llvm::Function::ExternalLinkage,
                                       name, module);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    function_->addFnAttr("target-cpu", jit::host().cpu);
    function_->addFnAttr("target-features", jit::host().features);
    const std::string bits = std::to_string(8 * jit::host().vector_bytes);
    function_->addFnAttr("prefer-vector-width", bits);
    function_->addFnAttr("min-legal-vector-width", bits);
    entry_ = llvm::BasicBlock::Create(context, "entry", function_);
    b_.SetInsertPoint(entry_);
    load_call();
  }

  void run() {
    schedule();
    totals_.assign(body_.size(), nullptr);
    for_reductions([&](std::size_t i) {
      if (!over(i, KernelOver::Rest) && !each_point(i)) {
        totals_[i] = accumulator(i, by_row(i));
      }
    });
    uniform_values();
    if (form_.vertical) {
      lanes(rows_, [&](Value* i) { row(i); });
    } else {
      loop(b_.getInt64(0), rows_, 1, [&](Value* i) { row(i); });
    }
    for_reductions([&](std::size_t i) {
      if (totals_[i] != nullptr) {
        Value* total = whole(i, b_.CreateLoad(totals_[i]->getAllocatedType(), totals_[i]));
        Value* place = partial(i);
        llvm::Type* stored = partial_type(i);
        Value* before = from_partial(i, b_.CreateLoad(stored, place));
        b_.CreateStore(to_partial(i, ops_.combine(body_[i].op, body_[i].dtype, before, total)), place);
      }
    });
    b_.CreateRetVoid();
  }

  void finish() {
    finishing_ = true;
    std::vector<std::size_t> single, each;
    for (std::size_t i = 0; i < body_.size(); ++i) {
      if (body_[i].op == KernelOp::Store && levels_[i] >= Level::AfterAll) {
        (levels_[i] == Level::AfterAll ? single : each).push_back(i);
      }
    }
    store_all(single);
    if (!each.empty()) {
      for (const std::size_t root : each) {
        prepare(root);
      }
      rest_loops([&] { store_all(each); });
    }
    b_.CreateRetVoid();
  }

 private:
  // --- what comes with the call --------------------------------------------------------------------------------------
  Value* field(unsigned index, llvm::Type* type) {
    Value* place = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), function_->getArg(0), 8 * index);
    return b_.CreateAlignedLoad(type, place, llvm::Align(8));
  }
  Value* element(Value* array, std::size_t index, llvm::Type* type) {
    return b_.CreateAlignedLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), array, index), llvm::Align(8));
  }

  void load_call() {
    llvm::Type* pointer = llvm::PointerType::getUnqual(b_.getContext());
    Value* pointers = field(0, pointer);
    Value* strides = field(1, pointer);
    Value* rest = field(2, pointer);
    numbers_ = field(3, pointer);
    coordinates_ = field(4, pointer);
    partials_ = field(5, pointer);
    rows_ = field(6, b_.getInt64Ty());
    const auto per = static_cast<std::size_t>(1 + form_.rest);
    for (std::size_t a = 0; a < form_.program.accesses.size(); ++a) {
      pointers_.push_back(element(pointers, a, pointer));
      for (std::size_t d = 0; d < per; ++d) {
        const std::uint8_t kind = form_.strides[a * per + d];
        strides_.push_back(kind == 0   ? b_.getInt64(0)
                           : kind == 1 ? b_.getInt64(static_cast<std::uint64_t>(element_size(form_.program.accesses[a].dtype)))
                                       : element(strides, a * per + d, b_.getInt64Ty()));
      }
    }
    for (int r = 0; r < form_.rest; ++r) {
      rest_.push_back(element(rest, static_cast<std::size_t>(r), b_.getInt64Ty()));
    }
    base_ = pointers_;
    at_.assign(static_cast<std::size_t>(1 + form_.rest), b_.getInt64(0));
  }

  Value* stride(std::size_t access, int dimension) const {
    return strides_[access * static_cast<std::size_t>(1 + form_.rest) + static_cast<std::size_t>(dimension)];
  }

  // --- the program ---------------------------------------------------------------------------------------------------
  std::size_t operand(std::size_t i, int k = 0) const { return static_cast<std::size_t>(body_[i].operands[k]); }
  bool over(std::size_t i, KernelOver what) const {
    return is_reduction(body_[i].op) && body_[i].immediate == static_cast<std::int64_t>(what);
  }
  /// A reduction over kept with a result for each point of the rest.
  bool each_point(std::size_t i) const { return over(i, KernelOver::Kept) && levels_[i] == Level::AfterKept; }
  DType result_type(std::size_t i) const {
    const KernelInstruction& instruction = body_[i];
    const bool truth = is_comparison(instruction.op) || instruction.op == KernelOp::Not || instruction.op == KernelOp::IsNan;
    return truth ? DType::Bool : instruction.dtype;
  }
  template <class Visit>
  void for_reductions(Visit&& visit) {
    for (std::size_t i = 0; i < body_.size(); ++i) {
      if (is_reduction(body_[i].op)) {
        visit(i);
      }
    }
  }

  /// Whether the value is made inside the loops over the rest.
  bool in_loops(std::size_t i) const { return levels_[i] == Level::Point || (finishing_ && levels_[i] == Level::AfterKept); }

  /// Which walk over the rest each value, store and reduction belongs to.
  void schedule() {
    stage_.assign(body_.size(), 0);
    int last = 0;
    for (std::size_t i = 0; i < body_.size(); ++i) {
      for (int k = 0; k < arity(body_[i].op); ++k) {
        const std::size_t from = operand(i, k);
        stage_[i] = std::max(stage_[i], stage_[from] + (over(from, KernelOver::Rest) ? 1 : 0));
      }
      if (is_reduction(body_[i].op) || (body_[i].op == KernelOp::Store && levels_[i] == Level::Point)) {
        last = std::max(last, stage_[i]);
      }
    }
    for (std::size_t i = 0; i < body_.size(); ++i) {
      if (body_[i].op == KernelOp::Store && form_.in_place) {
        stage_[i] = last;  // later walks still read what it overwrites
      }
    }
    stages_ = last + 1;
  }

  void uniform_values() {
    for (std::size_t i = 0; i < body_.size(); ++i) {
      if (levels_[i] == Level::Uniform && body_[i].op != KernelOp::Store && !is_reduction(body_[i].op)) {
        value(i);
      }
    }
  }

  void row(Value* i) {
    at_[0] = i;
    for (std::size_t a = 0; a < pointers_.size(); ++a) {
      base_[a] = moved(pointers_[a], i, stride(a, 0));
    }
    const std::size_t scope = made_.size();
    for (int stage = 0; stage < stages_; ++stage) {
      walk(stage);
    }
    std::vector<std::size_t> stores;
    for (std::size_t k = 0; k < body_.size(); ++k) {
      if (body_[k].op == KernelOp::Store && levels_[k] <= Level::Row) {
        stores.push_back(k);
      } else if (is_reduction(body_[k].op) && totals_[k] != nullptr && by_row(k)) {
        add(totals_[k], k, value(operand(k)));
      }
    }
    store_all(stores);
    forget(scope);
  }

  /// A reduction over kept of values that are the same along the rest.
  bool by_row(std::size_t i) const { return over(i, KernelOver::Kept) && !each_point(i); }

  void walk(int stage) {
    std::vector<std::size_t> stores, sums;
    for (std::size_t i = 0; i < body_.size(); ++i) {
      if (stage_[i] != stage) {
        continue;
      }
      if (body_[i].op == KernelOp::Store && levels_[i] == Level::Point) {
        stores.push_back(i);
      } else if (is_reduction(body_[i].op) && !by_row(i)) {
        sums.push_back(i);
      }
    }
    if (stores.empty() && sums.empty()) {
      return;
    }
    std::vector<llvm::AllocaInst*> accumulators(body_.size(), nullptr);
    std::vector<llvm::AllocaInst*> banks(body_.size(), nullptr);
    for (const std::size_t i : sums) {
      prepare(operand(i));
      accumulators[i] = over(i, KernelOver::Rest) ? accumulator(i, false) : totals_[i];
      banks[i] = long_sum(i) ? accumulator(i, false) : nullptr;
    }
    for (const std::size_t i : stores) {
      prepare(operand(i));
    }
    rest_loops([&] {
      for (const std::size_t i : sums) {
        if (each_point(i)) {
          add_each(i);
        } else {
          Value* term = wide(value(operand(i)));
          add(accumulators[i], i, form_.vertical ? term : masked(term, i));
        }
        if (banks[i] != nullptr) {
          bank(banks[i], accumulators[i], i);
        }
      }
      store_all(stores);
    });
    for (const std::size_t i : sums) {
      if (over(i, KernelOver::Rest)) {
        Value* total = b_.CreateLoad(accumulators[i]->getAllocatedType(), accumulators[i]);
        if (banks[i] != nullptr) {
          add(banks[i], i, total);
          total = b_.CreateLoad(banks[i]->getAllocatedType(), banks[i]);
        }
        remember(i, rounded(i, form_.vertical ? total : whole(i, total)));
      }
    }
  }

  // --- reductions ----------------------------------------------------------------------------------------------------
  llvm::AllocaInst* accumulator(std::size_t i, bool scalar) {
    Value* identity = ops_.identity(body_[i].op, body_[i].dtype);
    Value* start = scalar ? identity : wide(identity);
    llvm::IRBuilder<> top(entry_, entry_->begin());
    llvm::AllocaInst* place = top.CreateAlloca(start->getType());
    b_.CreateStore(start, place);
    return place;
  }
  void add(llvm::AllocaInst* place, std::size_t i, Value* term) {
    Value* sum = b_.CreateLoad(place->getAllocatedType(), place);
    b_.CreateStore(ops_.combine(body_[i].op, body_[i].dtype, sum, term), place);
  }
  /// Sums of which each lane takes all terms of its row. One after the other they lose digits, so every 128 are put away together.
  bool long_sum(std::size_t i) const {
    return form_.vertical && over(i, KernelOver::Rest) && body_[i].op == KernelOp::ReduceSum && is_floating(body_[i].dtype);
  }
  void bank(llvm::AllocaInst* bank, llvm::AllocaInst* sum, std::size_t i) {
    constexpr std::uint64_t mask = 127;
    Value* full = b_.CreateICmpEQ(b_.CreateAnd(linear_, b_.getInt64(mask)), b_.getInt64(mask));
    Value* terms = b_.CreateLoad(sum->getAllocatedType(), sum);
    Value* none = wide(ops_.identity(body_[i].op, body_[i].dtype));
    add(bank, i, b_.CreateSelect(full, terms, none));
    b_.CreateStore(b_.CreateSelect(full, none, terms), sum);
  }
  Value* masked(Value* term, std::size_t i) {
    return mask_ == nullptr ? term : b_.CreateSelect(mask_, term, wide(ops_.identity(body_[i].op, body_[i].dtype)));
  }
  /// Lanes put together in a fixed tree; a scalar as it is.
  Value* whole(std::size_t i, Value* value) {
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
    if (vector == nullptr) {
      return value;
    }
    for (unsigned lanes = vector->getNumElements(); lanes > 1; lanes /= 2) {
      std::vector<int> low, high;
      for (unsigned k = 0; k < lanes / 2; ++k) {
        low.push_back(static_cast<int>(k));
        high.push_back(static_cast<int>(k + lanes / 2));
      }
      value = ops_.combine(body_[i].op, body_[i].dtype, b_.CreateShuffleVector(value, low), b_.CreateShuffleVector(value, high));
    }
    return b_.CreateExtractElement(value, std::uint64_t{0});
  }
  Value* rounded(std::size_t i, Value* value) {
    return is_half(body_[i].dtype) ? ops_.cast(value, DType::Float32, body_[i].dtype) : value;
  }

  Value* partial(std::size_t i) {
    std::size_t index = 0;
    for (std::size_t k = 0; k < i; ++k) {
      index += is_reduction(body_[k].op) && !over(k, KernelOver::Rest) ? 1 : 0;
    }
    return element(partials_, index, llvm::PointerType::getUnqual(b_.getContext()));
  }
  llvm::Type* partial_type(std::size_t i) { return body_[i].dtype == DType::Bool ? b_.getInt8Ty() : ops_.held(body_[i].dtype); }
  Value* from_partial(std::size_t i, Value* value) {
    return body_[i].dtype == DType::Bool ? ops_.from_stored(value, DType::Bool) : value;
  }
  Value* to_partial(std::size_t i, Value* value) {
    return body_[i].dtype == DType::Bool ? ops_.to_stored(value, DType::Bool) : value;
  }
  /// The partial results at the lanes' points.
  Value* partial_at(std::size_t i) {
    llvm::Type* type = partial_type(i);
    return b_.CreateGEP(type, partial(i), linear_);
  }
  void add_each(std::size_t i) {
    Value* term = wide(value(operand(i)));
    llvm::Type* type = partial_type(i);
    Value* place = partial_at(i);
    const auto align = llvm::Align(type->getScalarSizeInBits() / 8);
    Value* before = from_partial(i, load_lanes(type, place, align));
    store_lanes(to_partial(i, ops_.combine(body_[i].op, body_[i].dtype, before, term)), place, align);
  }

  // --- loops ---------------------------------------------------------------------------------------------------------
  using Body = std::function<void(Value*)>;

  void loop(Value* begin, Value* end, std::int64_t step, const Body& body) {
    auto& context = b_.getContext();
    auto* before = b_.GetInsertBlock();
    auto* head = llvm::BasicBlock::Create(context, "loop", function_);
    auto* done = llvm::BasicBlock::Create(context, "done", function_);
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, done);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(begin, before);
    body(i);
    Value* next = b_.CreateAdd(i, b_.getInt64(static_cast<std::uint64_t>(step)), "", true, true);
    i->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, done);
    b_.SetInsertPoint(done);
  }

  /// Whole vectors, then what is left under a mask.
  void lanes(Value* size, const Body& body) {
    auto& context = b_.getContext();
    const auto count = static_cast<std::uint64_t>(form_.lanes);
    Value* full = b_.CreateAnd(size, b_.getInt64(~(count - 1)));
    const std::size_t scope = made_.size();
    loop(b_.getInt64(0), full, form_.lanes, [&](Value* i) {
      body(i);
      forget(scope);
    });
    if (count == 1) {
      return;
    }
    auto* tail = llvm::BasicBlock::Create(context, "tail", function_);
    auto* done = llvm::BasicBlock::Create(context, "done", function_);
    b_.CreateCondBr(b_.CreateICmpSLT(full, size), tail, done);
    b_.SetInsertPoint(tail);
    Value* left = b_.CreateTrunc(b_.CreateSub(size, full), b_.getInt32Ty());
    mask_ = b_.CreateICmpULT(iota(b_.getInt32Ty()), wide(left));
    body(full);
    forget(scope);
    mask_ = nullptr;
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }

  /// The loops over the rest; leaves base pointers as they were.
  void rest_loops(const std::function<void()>& body) {
    const std::vector<Value*> bases = base_;
    linear_ = b_.getInt64(0);
    rest_loop(0, body);
    base_ = bases;
  }

  void rest_loop(int r, const std::function<void()>& body) {
    const std::vector<Value*> bases = base_;
    Value* const before = linear_;
    const auto index = static_cast<std::size_t>(r);
    const Body step = [&](Value* i) {
      at_[index + 1] = i;
      for (std::size_t a = 0; a < base_.size(); ++a) {
        base_[a] = moved(bases[a], i, stride(a, r + 1));
      }
      linear_ = b_.CreateAdd(b_.CreateMul(before, rest_[index]), i);
      if (r + 1 < form_.rest) {
        rest_loop(r + 1, body);
      } else {
        const std::size_t scope = made_.size();
        body();
        forget(scope);
      }
    };
    if (r + 1 == form_.rest && !form_.vertical) {
      lanes(rest_[index], step);
    } else {
      loop(b_.getInt64(0), rest_[index], 1, step);
    }
    base_ = bases;
    linear_ = before;
  }

  Value* moved(Value* pointer, Value* by, Value* stride) {
    auto* constant = llvm::dyn_cast<llvm::ConstantInt>(stride);
    return constant != nullptr && constant->isZero() ? pointer : b_.CreateGEP(b_.getInt8Ty(), pointer, b_.CreateMul(by, stride));
  }

  // --- values --------------------------------------------------------------------------------------------------------
  void remember(std::size_t i, Value* value) {
    memo_[i] = value;
    made_.push_back(i);
  }
  /// Values made since then are out of reach for what follows.
  void forget(std::size_t scope) {
    for (; made_.size() > scope; made_.pop_back()) {
      memo_[made_.back()] = nullptr;
    }
  }

  /// Makes all that `i` needs and that does not change within the loops over the rest, before they begin.
  void prepare(std::size_t i) {
    if (memo_[i] != nullptr) {
      return;
    }
    if (!in_loops(i) && body_[i].op != KernelOp::Store) {
      value(i);
      return;
    }
    for (int k = 0; k < arity(body_[i].op) && !(finishing_ && is_reduction(body_[i].op)); ++k) {
      prepare(operand(i, k));
    }
  }

  Value* value(std::size_t i) {
    if (memo_[i] == nullptr) {
      remember(i, make(i));
    }
    return memo_[i];
  }

  Value* make(std::size_t i) {
    const KernelInstruction& instruction = body_[i];
    switch (instruction.op) {
      case KernelOp::Load: return load(static_cast<std::size_t>(instruction.immediate), i);
      case KernelOp::Number:
        return element(numbers_, static_cast<std::size_t>(instruction.immediate), ops_.held(instruction.dtype));
      case KernelOp::Constant: return ops_.constant(instruction.dtype, instruction.immediate);
      case KernelOp::Index: return index(static_cast<std::size_t>(instruction.immediate));
      case KernelOp::Cast: return ops_.cast(value(operand(i)), result_type(operand(i)), instruction.dtype);
      default: break;
    }
    if (is_reduction(instruction.op)) {
      SPOOL_CHECK(finishing_ && !over(i, KernelOver::Rest), Internal, "[compile] v", i, " is needed before it is complete:\n",
                  text(form_.program));
      if (!each_point(i)) {
        return rounded(i, from_partial(i, b_.CreateLoad(partial_type(i), partial(i))));
      }
      llvm::Type* type = partial_type(i);
      return rounded(i, from_partial(i, load_lanes(type, partial_at(i), llvm::Align(type->getScalarSizeInBits() / 8))));
    }
    std::vector<Value*> operands;
    bool vector = false;
    for (int k = 0; k < arity(instruction.op); ++k) {
      // Not of another dtype: compute() goes by the instruction's, which is that of the operand here.
      operands.push_back(value(operand(i, k)));
      vector = vector || operands.back()->getType()->isVectorTy();
    }
    if (vector) {
      std::transform(operands.begin(), operands.end(), operands.begin(), [&](Value* operand) { return wide(operand); });
    }
    const DType dtype = instruction.op == KernelOp::Not ? result_type(operand(i)) : instruction.dtype;
    return ops_.compute(instruction.op, dtype, operands);
  }

  /// One for each lane.
  Value* wide(Value* value) {
    return value->getType()->isVectorTy() ? value : b_.CreateVectorSplat(static_cast<unsigned>(form_.lanes), value);
  }
  llvm::Type* wide(llvm::Type* type) const { return llvm::FixedVectorType::get(type, static_cast<unsigned>(form_.lanes)); }
  Value* iota(llvm::Type* type) const {
    std::vector<llvm::Constant*> numbers;
    for (int i = 0; i < form_.lanes; ++i) {
      numbers.push_back(llvm::ConstantInt::get(type, static_cast<std::uint64_t>(i)));
    }
    return llvm::ConstantVector::get(numbers);
  }

  Value* index(std::size_t dimension) {
    Value* first = element(coordinates_, dimension, b_.getInt64Ty());
    const int place = form_.coordinates[dimension];
    if (place < 0 || (finishing_ && place == 0)) {
      return first;
    }
    Value* at = b_.CreateAdd(first, at_[static_cast<std::size_t>(place)]);
    return place == lane_dimension() ? b_.CreateAdd(wide(at), iota(b_.getInt64Ty())) : at;
  }

  // --- memory --------------------------------------------------------------------------------------------------------
  /// Along which the lanes lie.
  int lane_dimension() const { return form_.vertical ? 0 : form_.rest; }
  /// Whether lanes have a value each at this place in the program; else one value serves all.
  bool by_lane(std::size_t i) const { return in_loops(i) || form_.vertical; }

  Value* load_lanes(llvm::Type* type, Value* pointer, llvm::Align align) {
    llvm::Type* vector = wide(type);
    return mask_ == nullptr
               ? b_.CreateAlignedLoad(vector, pointer, align)
               : static_cast<Value*>(b_.CreateMaskedLoad(vector, pointer, align, mask_, llvm::Constant::getNullValue(vector)));
  }
  void store_lanes(Value* value, Value* pointer, llvm::Align align) {
    if (mask_ == nullptr) {
      b_.CreateAlignedStore(value, pointer, align);
    } else {
      b_.CreateMaskedStore(value, pointer, align, mask_);
    }
  }
  Value* addresses(std::size_t access) {
    Value* steps = b_.CreateMul(iota(b_.getInt64Ty()), wide(stride(access, lane_dimension())));
    return b_.CreateGEP(b_.getInt8Ty(), base_[access], steps);
  }
  Value* all_lanes() { return mask_ != nullptr ? mask_ : llvm::Constant::getAllOnesValue(wide(b_.getInt1Ty())); }

  Value* load(std::size_t access, std::size_t i) {
    const DType dtype = form_.program.accesses[access].dtype;
    llvm::Type* type = ops_.stored(dtype);
    const auto align = llvm::Align(static_cast<std::uint64_t>(element_size(dtype)));
    const std::uint8_t kind = by_lane(i) ? form_.stride(access, lane_dimension()) : 0;
    if (kind == 0) {
      return ops_.from_stored(b_.CreateAlignedLoad(type, base_[access], align), dtype);
    }
    if (kind == 1) {
      return ops_.from_stored(load_lanes(type, base_[access], align), dtype);
    }
    if (mask_ != nullptr || element_size(dtype) >= 4) {
      Value* none = llvm::Constant::getNullValue(wide(type));
      return ops_.from_stored(b_.CreateMaskedGather(wide(type), addresses(access), align, all_lanes(), none), dtype);
    }
    Value* result = llvm::PoisonValue::get(wide(type));
    for (int lane = 0; lane < form_.lanes; ++lane) {
      Value* place = moved(base_[access], b_.getInt64(static_cast<std::uint64_t>(lane)), stride(access, lane_dimension()));
      result = b_.CreateInsertElement(result, b_.CreateAlignedLoad(type, place, align), static_cast<std::uint64_t>(lane));
    }
    return ops_.from_stored(result, dtype);
  }

  /// Makes all the values before the first is stored: a store may overwrite what another one's value reads.
  void store_all(const std::vector<std::size_t>& stores) {
    std::vector<Value*> values;
    for (const std::size_t i : stores) {
      values.push_back(value(operand(i)));
    }
    for (std::size_t k = 0; k < stores.size(); ++k) {
      store(stores[k], values[k]);
    }
  }

  void store(std::size_t i, Value* value) {
    const auto access = static_cast<std::size_t>(body_[i].immediate);
    const DType dtype = form_.program.accesses[access].dtype;
    const auto align = llvm::Align(static_cast<std::uint64_t>(element_size(dtype)));
    const std::uint8_t kind = by_lane(i) ? form_.stride(access, lane_dimension()) : 0;
    if (kind == 0) {
      Value* one = value->getType()->isVectorTy() ? b_.CreateExtractElement(value, std::uint64_t{0}) : value;
      b_.CreateAlignedStore(ops_.to_stored(one, dtype), base_[access], align);
    } else if (kind == 1) {
      store_lanes(ops_.to_stored(wide(value), dtype), base_[access], align);
    } else {
      b_.CreateMaskedScatter(ops_.to_stored(wide(value), dtype), addresses(access), align, all_lanes());
    }
  }

  const Form& form_;
  const std::vector<KernelInstruction>& body_;
  const std::vector<Level>& levels_;
  llvm::IRBuilder<> b_;
  Ops ops_;
  std::vector<Value*> memo_;          ///< per instruction: its value, where it can be used now
  std::vector<std::size_t> made_;     ///< in the order they were made
  llvm::Module& module_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  bool finishing_ = false;
  std::vector<Value*> pointers_, strides_, rest_;
  Value *numbers_ = nullptr, *coordinates_ = nullptr, *partials_ = nullptr, *rows_ = nullptr;
  std::vector<Value*> base_;          ///< per access: where the current point (or its first lane) lies
  std::vector<Value*> at_;            ///< coordinates in the loops: innermost kept, then the rest
  Value* linear_ = nullptr;           ///< number of the point among the rest
  Value* mask_ = nullptr;             ///< lanes that exist; null: all
  std::vector<int> stage_;
  int stages_ = 1;
  std::vector<llvm::AllocaInst*> totals_;  ///< of reductions with a single result
};

}  // namespace

int vector_bytes() { return jit::host().vector_bytes; }

std::vector<Partial> partials(const Form& form) {
  const std::vector<Level> level = levels(form);
  std::vector<Partial> result;
  for (std::size_t i = 0; i < form.program.body.size(); ++i) {
    const KernelInstruction& instruction = form.program.body[i];
    if (is_reduction(instruction.op) && instruction.immediate != static_cast<std::int64_t>(KernelOver::Rest)) {
      result.push_back(
          {instruction.op, is_half(instruction.dtype) ? DType::Float32 : instruction.dtype, level[i] == Level::AfterKept});
    }
  }
  return result;
}

GeneratedCode generate(const Form& form) {
  const std::vector<Level> level = levels(form);
  auto machine = jit::target_machine();
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
#if LLVM_VERSION_MAJOR >= 21
  module.setTargetTriple(llvm::Triple(jit::host().triple));
#else
  module.setTargetTriple(jit::host().triple);
#endif
  module.setDataLayout(machine->createDataLayout());
  GeneratedCode code;
  Function(form, level, module, code.symbols, "run").run();
  code.finish = form.reduces(KernelOver::Kept) || form.reduces(KernelOver::All);
  if (code.finish) {
    Function(form, level, module, code.symbols, "finish").finish();
  }
  code.object = jit::compile(module, *machine);
  return code;
}

}  // namespace spool::native
