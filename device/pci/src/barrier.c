/* Barriers of POWER (Power ISA 3.0, book II, section 4.6.3). The clobber keeps the compiler from moving
 * memory accesses across; that each is a function behind a call does the same for Rust. */

void millrace_pci_sync(void)
{
    __asm__ volatile("sync" ::: "memory");
}

void millrace_pci_lwsync(void)
{
    __asm__ volatile("lwsync" ::: "memory");
}
