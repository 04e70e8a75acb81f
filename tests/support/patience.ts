/** How many times as long as usual things may take: an emulated machine has reason to be slow. */
export const patience = Number(process.env["ATOLL_TEST_PATIENCE"] ?? 1);
