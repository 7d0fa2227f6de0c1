// From an array of pointers to arguments (CUDA's kernelParams) to a call with typed arguments.
#pragma once

#include <stddef.h>

namespace wm_cpu {

template <size_t... I>
struct Positions {};

template <size_t N, size_t... I>
struct Count : Count<N - 1, N - 1, I...> {};

template <size_t... I>
struct Count<0, I...> {
    using Type = Positions<I...>;
};

template <class... P, size_t... I>
inline void call_with(void (*kernel)(P...), const void* const* arguments, Positions<I...>) {
    kernel(*static_cast<const P*>(arguments[I])...);
}

// Calls `kernel` with `arguments[i]` pointing to its i-th parameter.
template <class... P>
inline void call(void (*kernel)(P...), const void* const* arguments) {
    call_with(kernel, arguments, typename Count<sizeof...(P)>::Type());
}

// Whether the i-th parameter has sizes[i] bytes: holds the parsed declaration against the compiled
// one.
template <class... P>
constexpr bool has_sizes(void (*)(P...), const size_t (&sizes)[sizeof...(P)]) {
    const size_t real[] = {sizeof(P)...};
    for (size_t i = 0; i < sizeof...(P); i++)
        if (real[i] != sizes[i]) return false;
    return true;
}

}  // namespace wm_cpu
