/* A driver library of three functions: the least that answers for a driver, and an old one's lack of all the rest. */

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
