/* Barriers and cache lines of POWER (Power ISA 3.0, book II, sections 4.3.2 and 4.6.3). The clobber keeps the
 * compiler from moving memory accesses across; that each is a function behind a call does the same for Rust. */

void millrace_window_sync(void)
{
    __asm__ volatile("sync" ::: "memory");
}

void millrace_window_lwsync(void)
{
    __asm__ volatile("lwsync" ::: "memory");
}

/* Data Cache Block Store: the line goes to memory and stays. */
void millrace_window_dcbst(const void *line)
{
    __asm__ volatile("dcbst 0,%0" ::"r"(line) : "memory");
}

/* Data Cache Block Flush: the line goes to memory if it was changed, and is dropped. */
void millrace_window_dcbf(const void *line)
{
    __asm__ volatile("dcbf 0,%0" ::"r"(line) : "memory");
}
