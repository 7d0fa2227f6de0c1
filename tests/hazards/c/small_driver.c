/* A driver library of three functions, the fewest that work as a driver; like an old driver, it
 * lacks all others. */

int cuInit(unsigned flags) { return flags ? 1 : 0; }

int cuDriverGetVersion(int *version)
{
    *version = 9000;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}
