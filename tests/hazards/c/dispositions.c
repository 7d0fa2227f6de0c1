/* Prints each signal that is not at its default, and the blocked ones: at the start, after loading
 * the driver library, and after cuInit.
 *
 *   dispositions [handle|ignore]     first takes SIGUSR2 for itself, or ignores it */

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

#include "driver.h"

static void mine(int number) { (void)number; }

static const char *word(const struct sigaction *action)
{
    return action->sa_handler == SIG_IGN ? "ignored" : action->sa_handler == mine ? "mine" : "taken";
}

static void print(const char *when)
{
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (!sigaction(number, NULL, &action) && action.sa_handler != SIG_DFL)
            printf("%s: %s %s\n", when, strsignal(number), word(&action));
        if (sigismember(&blocked, number) == 1)
            printf("%s: %s blocked\n", when, strsignal(number));
    }
}

int main(int count, char **argument)
{
    int version;
    if (count > 1)
        signal(SIGUSR2, strcmp(argument[1], "ignore") ? mine : SIG_IGN);
    print("start");
    MUST(cuDriverGetVersion(&version));
    print("first call");
    MUST(cuInit(0));
    print("cuInit");
    return 0;
}
