/* Reaches the driver in one way and prints the library that it reached: "shim", "driver", or
 * "nothing".
 *
 *   opener open NAME FLAGS          dlopen
 *   opener again PATH NAME FLAGS    dlopen of NAME after PATH was opened
 *   opener namespace NAME           dlmopen into a new namespace
 *   opener default                  dlsym(RTLD_DEFAULT), nothing opened before
 *   opener plugin PATH FLAGS        the driver that a plugin is linked to
 *   opener asked PATH FLAGS NAME    dlopen called from inside a plugin
 *   opener fork ARGUMENTS...        any of these in a forked child
 *   opener exec ARGUMENTS...        any of these after exec with the same environment
 *   opener scrubbed ARGUMENTS...    any of these after exec without LD_PRELOAD
 *
 * The function that was reached is also called. files.h tells libraries apart. */

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"

typedef int (*init_t)(unsigned);

static int verdict(void *init)
{
    puts(owner(init));
    fflush(stdout);
    return init ? ((init_t)init)(0) : 0;
}

static int flags(const char *words)
{
    static const struct { const char *word; int flag; } known[] = {
        {"now", RTLD_NOW}, {"lazy", RTLD_LAZY}, {"global", RTLD_GLOBAL}, {"noload", RTLD_NOLOAD}, {"deep", RTLD_DEEPBIND},
    };
    int all = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        all |= strstr(words, known[i].word) ? known[i].flag : 0;
    return all;
}

static void *init_of(void *library) { return library ? dlsym(library, "cuInit") : NULL; }

static void *must_open(const char *path, int mode)
{
    void *library = dlopen(path, mode);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(90);
    }
    return library;
}

static int in_child(char **arguments, int (*row)(char **))
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(row(arguments));
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 91;
}

static int row(char **argument)
{
    const char *way = argument[0];
    if (!strcmp(way, "open"))
        return verdict(init_of(dlopen(argument[1], flags(argument[2]))));
    if (!strcmp(way, "again")) {
        must_open(argument[1], RTLD_NOW);
        return verdict(init_of(dlopen(argument[2], flags(argument[3]))));
    }
    if (!strcmp(way, "namespace"))
        return verdict(init_of(dlmopen(LM_ID_NEWLM, argument[1], RTLD_NOW)));
    if (!strcmp(way, "default"))
        return verdict(dlsym(RTLD_DEFAULT, "cuInit"));
    if (!strcmp(way, "plugin"))
        return verdict(((void *(*)(void))dlsym(must_open(argument[1], flags(argument[2])), "plugin_init"))());
    if (!strcmp(way, "asked"))
        return verdict(init_of(((void *(*)(const char *))dlsym(must_open(argument[1], flags(argument[2])), "plugin_open"))(argument[3])));
    if (!strcmp(way, "fork"))
        return in_child(argument + 1, row);
    return 92;
}

int main(int count, char **argument)
{
    if (count < 2)
        return 93;
    if (strcmp(argument[1], "exec") && strcmp(argument[1], "scrubbed"))
        return row(argument + 1);
    if (argument[1][0] == 's')
        unsetenv("LD_PRELOAD");
    argument[1] = argument[0];
    execv(argument[0], argument + 1);
    return 94;
}
