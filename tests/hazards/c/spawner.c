/* Starts a program many times, one child after another, as a build system does.
 *
 *   spawner N PROGRAM */

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **argument)
{
    char *words[] = {argument[2], NULL};
    if (count != 3)
        return 90;
    for (int i = atoi(argument[1]); i > 0; i--) {
        pid_t child;
        int status;
        if (posix_spawn(&child, argument[2], NULL, NULL, words, environ))
            return 91;
        waitpid(child, &status, 0);
        if (status)
            return 92;
    }
    return 0;
}
