/** The factor by which deadlines of tests are extended; emulated machines, which are slow, set it. */
export const patience = Number(process.env["ATOLL_TEST_PATIENCE"] ?? 1);
