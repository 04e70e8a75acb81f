import { defineConfig } from "vitest/config";
import base from "../../vitest.config.ts";

export default defineConfig({
  ...base,
  test: {
    root: import.meta.dirname,
    include: ["*.test.ts"],
    // An emulated machine boots, and runs Node, within a minute or two.
    testTimeout: 300_000,
    hookTimeout: 1_200_000,
  },
});
