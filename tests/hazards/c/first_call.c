/* Calls each driver function of symbols.h twice and checks that all arguments arrived.
 *
 *   first_call fresh [SKIPPED...]     each function in a process of its own, where its call is the first
 *   first_call steady [SKIPPED...]    all of them in one process
 *
 * Prints how many functions answered, and on stderr those that did not. */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"

typedef long (*function_t)(PARAMETERS);

static const char *const names[] = {
#define X(index, name) #name,
#include "symbols.h"
};

/* 0: arrived both times. 1: not the first time. 2: not the second time. */
static int call_twice(function_t function, long index)
{
    long first = function(SENT);
    long second = function(SENT);
    return first == ANSWER(index) && second == ANSWER(index) ? 0 : first == ANSWER(index) ? 2 : 1;
}

static int in_fresh_process(function_t function, long index)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(call_twice(function, index));
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int is_skipped(const char *name, int count, char **skipped)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name, skipped[i]))
            return 1;
    return 0;
}

int main(int count, char **argument)
{
    int right = 0, wrong = 0;
    int is_fresh = !strcmp(argument[1], "fresh");
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return 90;
    for (long i = 0; i < (long)(sizeof names / sizeof *names); i++) {
        if (is_skipped(names[i], count - 2, argument + 2))
            continue;
        function_t function = (function_t)dlsym(library, names[i]);
        int result = !function ? 99 : is_fresh ? in_fresh_process(function, i) : call_twice(function, i);
        if (result)
            fprintf(stderr, "%s: %d\n", names[i], result);
        result ? wrong++ : right++;
    }
    printf("%d\n", right);
    return wrong ? 1 : 0;
}
