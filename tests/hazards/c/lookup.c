/* Asks cuGetProcAddress for every line of standard input (name,version,flags) and prints the
 * answer:
 *
 *   name,version,flags,result,status,export,owner
 *
 * "export" is the exported name at exactly that address, "owner" the library that it belongs to,
 * see files.h. `lookup v1` uses the first version of the function, which has no status. */

#include "driver.h"
#include "files.h"

static void print(const char *question, CUresult result, int status, void *function)
{
    Dl_info info;
    if (!function || !dladdr(function, &info))
        printf("%s,%d,%d,-,-\n", question, result, status);
    else
        printf("%s,%d,%d,%s,%s\n", question, result, status,
               info.dli_saddr == function && info.dli_sname ? info.dli_sname : "?", owner(function));
}

static void ask(char *question, int old)
{
    char name[128];
    int version, status = -1;
    unsigned long long flags;
    void *function = NULL;
    question[strcspn(question, "\n")] = 0;
    size_t length = strcspn(question, ",");
    snprintf(name, sizeof name, "%.*s", (int)length, question);
    if (sscanf(question + length, ",%d,%llu", &version, &flags) != 2)
        exit(90);
    CUresult result = old ? cuGetProcAddress(name, &function, version, flags)
                          : cuGetProcAddress_v2(name, &function, version, flags, &status);
    print(question, result, status, function);
}

static void odd_arguments(void)
{
    void *function = &function;
    int status = -1;
    CUresult result = cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, NULL);
    print("no status", result, -1, function);
    function = NULL;
    result = cuGetProcAddress_v2("", &function, 12000, 0, &status);
    print("empty name", result, status, function);
    function = NULL, status = -1;
    result = cuGetProcAddress_v2("cuNoSuchFunction", &function, 12000, 0, &status);
    print("unknown name", result, status, function);
    function = NULL, status = -1;
    result = cuGetProcAddress_v2("cuMemAllocAsync", &function, 2000, 0, &status);
    print("old version", result, status, function);
    print("no name", cuGetProcAddress_v2(NULL, &function, 12000, 0, &status), 0, NULL);
    print("no place", cuGetProcAddress_v2("cuInit", NULL, 12000, 0, &status), 0, NULL);
}

int main(int count, char **argument)
{
    char line[256];
    int old = count > 1 && !strcmp(argument[1], "v1");
    MUST(cuInit(0));
    if (count > 1 && !strcmp(argument[1], "odd"))
        odd_arguments();
    else
        while (fgets(line, sizeof line, stdin))
            ask(line, old);
    return 0;
}
