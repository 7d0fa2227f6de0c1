/* A program that obeys standard input, one word a line, until `exit` or `stop`. Answers each with
 * "done".
 *
 *   begin    uses the driver      fork     forks a child that stays until "reap"
 *   reap     ends the child       exit     ends
 *   stop     ends without handlers */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static pid_t child;

/* Returns when the child is out of fork: the fork handlers of libraries have run in the
 * child then. */
static void fork_child(void)
{
    int ready[2];
    char byte;
    if (pipe(ready))
        exit(88);
    child = fork();
    close(ready[1]);
    if (child == 0)
        for (;;)
            pause();
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
}

static void obey(const char *word)
{
    CUdeviceptr address;
    if (!strcmp(word, "begin")) {
        begin();
        MUST(cuMemAlloc_v2(&address, 8 << 20));
    } else if (!strcmp(word, "fork")) {
        fork_child();
    } else if (!strcmp(word, "reap")) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    } else if (!strcmp(word, "exit")) {
        exit(0);
    } else if (!strcmp(word, "stop")) {
        _exit(0);
    }
}

int main(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        obey(line);
        printf("done %d\n", (int)child);
        fflush(stdout);
    }
    return 0;
}
