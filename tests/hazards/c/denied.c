/* denied NUMBERS PROGRAM ARGUMENT...
 *
 * Becomes the program, to which the kernel then answers these system calls with "not permitted", as
 * filters of containers and sandboxes do. Exit code 77 where no filter can be set. */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST = 16 };

int main(int argc, char **argv)
{
    struct sock_filter rules[2 * MOST + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short count = 1;
    if (argc < 3)
        return 2;
    for (char *number = strtok(argv[1], ","); number && count < 2 * MOST; number = strtok(NULL, ",")) {
        rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(number), 0, 1);
        rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = { count, rules };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 77;
    execv(argv[2], argv + 2);
    return 99;
}
