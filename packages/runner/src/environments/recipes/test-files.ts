/** Files that are no tests themselves, though a test patch changes them. */
const dataFile = /\.(json|png|csv|txt|md|jpe?g|pkl|ya?ml|toml|rst|cfg|ini|html|xml|svg|gz|zip|lock)$/i;

/** The files that a patch changes or adds, in its order. Files that it removes are left out. */
export function patchedFiles(patch: string): string[] {
  const files: string[] = [];
  let isRemoved = false;
  let current = "";
  const add = (): void => {
    if (current !== "" && !isRemoved && !files.includes(current)) files.push(current);
  };
  for (const line of patch.split("\n")) {
    const header = /^diff --git a\/.+ b\/(.+)$/.exec(line);
    if (header !== null) {
      add();
      current = header[1] ?? "";
      isRemoved = false;
    } else if (line.startsWith("deleted file mode ") || line === "+++ /dev/null") isRemoved = true;
  }
  add();
  return files;
}

/** Returns the changed files that a test runner can be given. */
export const testFiles = (patch: string): string[] => patchedFiles(patch).filter((path) => !dataFile.test(path));
