// Errors: three kinds of failure, one header.
//
//  - the user's:  wrong arguments or wrong use of a call; thrown at the user's line (SPOOL_CHECK).
//  - ours:        a broken invariant of Spool itself (SPOOL_ASSERT); says file and line of the check.
//  - at run time: a plan that failed on the runtime thread; carried as an Error value to the next wait or read.
//
// The core knows no torch type. `ErrorKind` tells the binding which of PyTorch's exceptions to raise.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace spool {

enum class ErrorKind { Runtime, Value, Type, Index, NotImplemented, OutOfMemory, Internal };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// Streams its arguments into one string.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, const Args&... args) {
  throw Error(kind, str(args...));
}

}  // namespace spool

/// Checks what the user gave. `kind` is an ErrorKind member; the message begins with "[op or call]".
#define SPOOL_CHECK(condition, kind, ...)                   \
  do {                                                      \
    if (!(condition)) [[unlikely]] {                        \
      ::spool::fail(::spool::ErrorKind::kind, __VA_ARGS__); \
    }                                                       \
  } while (false)

/// Checks an invariant of Spool itself.
#define SPOOL_ASSERT(condition, ...)                                                                     \
  do {                                                                                                   \
    if (!(condition)) [[unlikely]] {                                                                     \
      ::spool::fail(::spool::ErrorKind::Internal, "[spool] internal error at ", __FILE__, ":", __LINE__, \
                    ": expected " #condition ". ", ::spool::str(__VA_ARGS__), " Please report this.");   \
    }                                                                                                    \
  } while (false)
