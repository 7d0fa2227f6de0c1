/* The arguments that first_call.c sends and echo_driver.c expects: all six integer and eight vector
 * registers, and two words on the stack. */

#define PARAMETERS                                                                                            \
    long a, long b, long c, long d, long e, long f, double p, double q, double r, double s, double t,         \
        double u, double v, double w, long g, long h

#define SENT 11L, 22L, 33L, 44L, 55L, 66L, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 77L, 88L

#define AS_SENT                                                                                               \
    (a == 11 && b == 22 && c == 33 && d == 44 && e == 55 && f == 66 && g == 77 && h == 88 && p == 0.5 &&      \
     q == 1.5 && r == 2.5 && s == 3.5 && t == 4.5 && u == 5.5 && v == 6.5 && w == 7.5)

#define ANSWER(index) (1000000L + (index))
