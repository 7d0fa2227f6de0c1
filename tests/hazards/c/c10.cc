/* The part of PyTorch's core library that c10.h declares. */

#include "c10.h"

namespace c10 {

int Error::living;

Error::Error(SourceLocation location, std::string text)
    : text(std::move(text)), place(std::string(location.function) + " of " + location.file)
{
    living++;
}

Error::~Error() { living--; }

const char *Error::what() const noexcept { return text.c_str(); }

namespace detail {
void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text)
{
    throw Error({ function, file, line }, text);
}
}

}
