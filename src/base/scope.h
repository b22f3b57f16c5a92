// Scopes: names opened around code by a profiler scope; ops recorded inside carry them. Per thread.
#pragma once

#include <memory>
#include <string>

namespace spool::scope {

void push(std::string name);
/// Closes the innermost scope of this thread, also one that a reset has hidden. Throws Error(Runtime) if none is open.
void pop();
/// Ops recorded from here on carry none of the scopes open in this thread; those stay open for their `pop`.
void reset();
/// Open names joined by '/', without hidden ones.
std::string current();
/// The same, shared by all that ask until it changes.
std::shared_ptr<const std::string> current_shared();

}  // namespace spool::scope
