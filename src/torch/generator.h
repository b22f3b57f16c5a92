// The random generator of device xla. Random ops draw from a CPU generator while they are recorded, so the numbers and their
// order are those of an eager CPU run; this type only gives that CPU generator a face on device xla.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

namespace spool::torch_side {

// The generator of xla:0. It wraps PyTorch's default CPU generator: seeding, reading and restoring the one is doing so to the other.
// Thread-safe; the returned reference lives as long as the process.
const at::Generator& default_generator();

// A generator on xla:0 of its own stream, seeded like a new `torch.Generator()`.
at::Generator new_generator();

// The CPU generator that `generator` draws from: the default one for nullopt or an undefined generator, the wrapped one for a generator
// of device xla, and a CPU generator itself. Throws c10::Error for a generator of any other device. Lock its mutex() while drawing.
at::Generator cpu_generator(const std::optional<at::Generator>& generator);

}  // namespace spool::torch_side
