import { defineConfig } from "vitest/config";

const conditions = ["source", "node", "development|production"];

/** The tests of external servers, one file after the other: `npm run test:stores`. */
export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    include: ["tests/stores/*.test.ts"],
    pool: "forks",
    fileParallelism: false,
    hookTimeout: 120_000,
  },
});
