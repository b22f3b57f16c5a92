// Step closures: functions that run when the step they were added in has been launched.
//
// Thread-safe. Closures run in the order in which they were added: plain ones on the thread that cuts, asynchronous ones on one
// background thread. An exception of a plain closure comes out of the call that ran it, after the others have run; one of an
// asynchronous closure comes out of the next call of `add` or `run`.
#pragma once

#include <functional>

namespace spool::closures {

void add(std::function<void()> fn, bool run_async);
/// Runs what was added. Called after a cut by sync() and step().
void run();
/// Waits for the background thread to finish what it has and ends it; later asynchronous closures start it again. Throws what an
/// asynchronous closure threw and nobody has been told of.
void drain();

}  // namespace spool::closures
