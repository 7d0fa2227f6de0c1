/* Has a library take as many blocks of 4 MiB as the first argument says, plain and stream-ordered
 * ones in turn, or only stream-ordered ones if the second argument is `ordered`. Prints how many it
 * got, and the first code that was no success. */

#include <string.h>

#include "driver.h"

CUresult ask_block(CUdeviceptr *address, unsigned long bytes, int ordered);

int main(int arguments, char **argument)
{
    int wanted = arguments > 1 ? atoi(argument[1]) : 1, got = 0;
    CUresult answer = CUDA_SUCCESS;
    int ordered = arguments > 2 && !strcmp(argument[2], "ordered");
    begin();
    while (got < wanted && answer == CUDA_SUCCESS) {
        CUdeviceptr address;
        answer = ask_block(&address, 4ul << 20, ordered || got % 2);
        got += answer == CUDA_SUCCESS;
    }
    printf("%d %d\n", got, answer);
    return 0;
}
