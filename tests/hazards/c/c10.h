/* The few declarations of PyTorch's core that a failed allocation meets, with the names and the
 * layout rules that its libraries have. Compiled with _GLIBCXX_USE_CXX11_ABI=0, the constructor's
 * name is that of PyTorch before 2.6. */

#ifndef C10_H
#define C10_H

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace c10 {

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class Error : public std::exception {
    std::string text, place;
    std::vector<std::string> context;

  public:
    static int living;
    Error(SourceLocation location, std::string text);
    Error(const Error &) = delete;
    ~Error() override;
    const char *what() const noexcept override;
    const std::string &where() const { return place; }
};

class OutOfMemoryError : public Error {
    using Error::Error;
};

namespace detail {
[[noreturn]] void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text);
}

/* Throws one. It is in the second library, so that this library holds the type. */
[[noreturn]] void run_out();

}

#endif
