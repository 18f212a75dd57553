/* Rotary position embedding of one row (Su et al., "RoFormer", 2021): the first ROTARY_DIM elements
 * are pairs, each turned by an angle of its own; the rest is copied.
 *
 * Build options: ROTARY_DIM, even, 0 where all is copied; ROTARY_INTERLEAVED: 1 pairs neighbours, 0
 * the two halves. */

/* A row's work-items: p < ROTARY_PAIRS turns pair p, each later one copies one element. One item
 * does both elements of a pair, so that a row may be written over itself. */
#define ROTARY_PAIRS (ROTARY_DIM / 2)

static int rotate_items(int dim)
{
    return dim - ROTARY_PAIRS;
}

/* The elements a and b of pair p. */
static int rotate_a(int p)
{
    return ROTARY_INTERLEAVED ? 2 * p : p;
}

static int rotate_b(int p)
{
    return ROTARY_INTERLEAVED ? 2 * p + 1 : p + ROTARY_PAIRS;
}

/* The element that item p >= ROTARY_PAIRS copies. */
static int rotate_copied(int p)
{
    return p + ROTARY_PAIRS;
}

/* The pair (a, b), turned by the angle with these cosine and sine. */
static float2 rotate_pair(float a, float b, float cosine, float sine)
{
    return (float2)(a * cosine - b * sine, b * cosine + a * sine);
}

/* A row of the tables, whatever stands in device memory. */
static ulong rotate_position(long position, int positions)
{
    return (ulong)clamp(position, 0L, (long)positions - 1);
}
