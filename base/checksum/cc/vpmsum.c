/*
 * CRC32C by carry-less multiplication on POWER8 and later, little-endian.
 *
 * The method is that of V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel, 2009; src/folding.rs says how bits stand for polynomials, computes the constants
 * and checks them. One vpmsumd multiplies both halves of a vector and adds the products, which is one
 * folding step.
 */

#include <altivec.h>
#include <stddef.h>
#include <stdint.h>

/* Element 0 is the low half of a vector, element 1 the high half. */
typedef __vector unsigned long long vec;

/* `Folding` of src/folding.rs. */
struct folding {
    vec by_1024;
    vec by_512;
    vec by_256;
    vec by_128;
    vec to_96;
    vec to_64;
    vec quotient;
    vec polynomial;
};
_Static_assert(sizeof(struct folding) == 128, "the layout that Rust fills in");

/* Blocks that are summed side by side, which hides the latency of vpmsumd: six to seven cycles. */
enum { BLOCK = 16, LANES = 8 };

/* Unrolled, so that the sums of the lanes stay in registers. */
#define EACH(lanes) _Pragma("GCC unroll 8") for (int lane = 0; lane < (lanes); lane++)

static inline vec load(const uint8_t *bytes)
{
    return (vec)vec_xl(0, bytes);
}

/* The instruction vpmsumd, by the name that all compilers know. */
static inline vec multiply(vec a, vec b)
{
    return (vec)vec_pmsum_be(a, b);
}

/* Moves `sum` the distance of `by` further up and adds what is there. */
static inline vec fold(vec sum, vec by, vec there)
{
    return multiply(sum, by) ^ there;
}

/* The register after the 128 bits of `sum`, beginning from an empty one. */
static inline uint32_t reduce(vec sum, const struct folding *constants)
{
    const vec high = {0, ~0ULL}, low_word = {0xffffffffULL, 0};

    sum = multiply(sum, constants->to_96);
    sum = multiply(sum, constants->to_64) ^ (sum & high);
    /* The low word of the product comes from the low words of the factors: the other need not be cleared. */
    vec quotient = multiply(sum, constants->quotient) & low_word;
    vec multiple = multiply(quotient, constants->polynomial);
    return (uint32_t)((sum[1] ^ multiple[0]) >> 32);
}

/*
 * The register after `blocks` times 16 bytes, beginning from `state`. There must be at least one block;
 * `bytes` needs no alignment.
 */
uint32_t millrace_crc32c_vpmsum(uint32_t state, const uint8_t *bytes, size_t blocks,
                                const struct folding *constants)
{
    const vec initial = {state, 0};
    vec sum;

    if (blocks >= LANES) {
        vec sums[LANES];
        EACH(LANES)
            sums[lane] = load(bytes + lane * BLOCK);
        sums[0] ^= initial;
        bytes += LANES * BLOCK;
        blocks -= LANES;
        for (; blocks >= LANES; blocks -= LANES, bytes += LANES * BLOCK) {
            EACH(LANES)
                sums[lane] = fold(sums[lane], constants->by_1024, load(bytes + lane * BLOCK));
        }
        EACH(4)
            sums[lane] = fold(sums[lane], constants->by_512, sums[lane + 4]);
        EACH(2)
            sums[lane] = fold(sums[lane], constants->by_256, sums[lane + 2]);
        sum = fold(sums[0], constants->by_128, sums[1]);
    } else {
        sum = load(bytes) ^ initial;
        bytes += BLOCK;
        blocks--;
    }
    for (; blocks > 0; blocks--, bytes += BLOCK)
        sum = fold(sum, constants->by_128, load(bytes));
    return reduce(sum, constants);
}
