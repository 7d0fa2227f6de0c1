/* A program that is linked with -lcuda. Prints which library's cuInit the loader gave it (see
 * files.h), and calls it. */

#include <stdio.h>

#include "files.h"

int cuInit(unsigned flags);

int main(void)
{
    puts(owner((void *)cuInit));
    return cuInit(0);
}
