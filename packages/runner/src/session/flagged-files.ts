const javascriptTools = "jest|vitest|vite|karma|mocharc|mocha|babel|ava|tap";

/** Names of files with which a change can decide which tests are found, how they run, or what is reported of them. */
const names = [
  /^(?:conftest\.py|pytest\.ini|\.?pytest\.toml|tox\.ini|setup\.cfg|pyproject\.toml)$/,
  /^(?:sitecustomize\.py|usercustomize\.py|.*\.pth|package\.json)$/,
  new RegExp(`^\\.?(?:${javascriptTools})(?:rc)?(?:\\.conf(?:ig)?)?\\.(?:[cm]?[jt]s|json|ya?ml)$`),
  /^\.(?:mocharc|babelrc|taprc|npmrc)$/,
];

/** The files that a patch changes and with which it could change how tests are collected or reported. */
export function flaggedFiles(patch: string): string[] {
  const paths = [...patch.matchAll(/^(?:\+\+\+ |--- |rename to |copy to )"?(?:[ab]\/)?([^\t\n"]+)/gm)];
  const files = new Set(paths.map(([, path = ""]) => path).filter((path) => path !== "/dev/null"));
  return [...files].filter((path) => names.some((name) => name.test(path.slice(path.lastIndexOf("/") + 1)))).toSorted();
}
