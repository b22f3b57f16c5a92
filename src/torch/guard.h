// What the device guard of xla needs from the runtime. The guard itself registers with PyTorch when the library is loaded.
#pragma once

namespace spool::torch_side {

// Sets what a synchronisation asked for through PyTorch's generic interface (a stream's synchronize(), torch.accelerator) calls: it should
// wait for what has been launched. Until it is set, such calls return at once. Thread-safe.
void set_device_waiter(void (*wait)());

}  // namespace spool::torch_side
