import { expect, test } from "vitest";
import { addedDependencies, choosePackageManager } from "../../src/environments/node/package-manager.ts";
import type { RepositoryTree } from "../../src/repository/repository-tree.ts";

const treeOf = (files: Readonly<Record<string, string>>): RepositoryTree => ({
  commit: "0".repeat(40),
  read: async (path) => files[path],
  list: async () => Object.keys(files),
  describe: async () => undefined,
});

test.for([
  [{ "package.json": "{}", "package-lock.json": "{}" }, undefined, "npm ci"],
  [{ "package.json": "{}" }, undefined, "npm install"],
  [{ "package.json": "{}", "pnpm-lock.yaml": "" }, "pnpm@9", "pnpm install"],
  [{ "package.json": '{"packageManager":"pnpm@9.10.0+sha256.abc"}' }, "pnpm@9.10.0", "pnpm install"],
  [{ "package.json": "{}", "yarn.lock": "" }, "yarn@1", "yarn install"],
  [{ "package.json": "{}", "yarn.lock": "", ".yarnrc.yml": "" }, "@yarnpkg/cli-dist@4", "yarn install"],
  [{ "package.json": "{}", "yarn.lock": "", "package-lock.json": "" }, undefined, "npm ci"],
  [{ "package.json": "not JSON" }, undefined, "npm install"],
] as const)("with the files %j the tool is %s and the first attempt is %s", async ([files, tool, first]) => {
  const manager = await choosePackageManager(treeOf(files));
  expect(manager.tool).toBe(tool);
  expect(manager.attempts[0]?.slice(0, 2).join(" ")).toBe(first);
});

test("no way of installing runs scripts of packages or changes the lock file of npm", async () => {
  const files = [{ "package-lock.json": "" }, { "pnpm-lock.yaml": "" }, { "yarn.lock": "" }];
  for (const names of files) {
    const { attempts, name } = await choosePackageManager(treeOf(names));
    for (const argv of attempts) {
      expect(argv).toContain("--ignore-scripts");
      if (name === "npm" && argv[1] === "install") expect(argv).toContain("--no-save");
    }
  }
});

test("packages that a patch adds to package.json are found, and those that it keeps or moves are not", () => {
  const patch = `diff --git a/package.json b/package.json
-    "kept": "^1.0.0",
+    "kept": "^1.0.0"
+    "form-data": "^4.0.0",
+    "@scope/name": "2.x"
-  "version": "1.0.0",
+  "version": "1.0.1",
+    "test": "mocha"
diff --git a/lib/x.js b/lib/x.js
+    "not-a-dependency": "1.0.0",
`;
  expect(addedDependencies(patch)).toEqual(["form-data@^4.0.0", "@scope/name@2.x"]);
});
