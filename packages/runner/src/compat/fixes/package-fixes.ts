import type { CompatFix } from "../compat-fix.ts";
import { fromText } from "./from-text.ts";

const noModule = /No module named '?([A-Za-z_][\w]*)/;

/** Distributions whose module has another name. */
const distributionOf: Readonly<Record<string, string>> = {
  attr: "attrs",
  bs4: "beautifulsoup4",
  cv2: "opencv-python",
  dateutil: "python-dateutil",
  distutils: "setuptools",
  docx: "python-docx",
  dotenv: "python-dotenv",
  git: "gitpython",
  jose: "python-jose",
  jwt: "pyjwt",
  magic: "python-magic",
  mpl_toolkits: "matplotlib",
  OpenSSL: "pyopenssl",
  PIL: "pillow",
  pkg_resources: "setuptools",
  serial: "pyserial",
  skimage: "scikit-image",
  sklearn: "scikit-learn",
  socks: "pysocks",
  yaml: "pyyaml",
  zmq: "pyzmq",
};

/** Modules of the standard library that newer versions have removed: no distribution has them. */
const removedModules = new Set(["imp", "asyncore", "asynchat", "smtpd", "cgi", "cgitb", "pipes", "crypt", "telnetlib"]);

const moduleIn = (text: string): string => noModule.exec(text)?.[1] ?? /^\w+$/.exec(text)?.[0] ?? "";

export const packageFixes: readonly CompatFix[] = [
  {
    id: "missing-module",
    layer: "packages",
    languages: ["python"],
    risk: "low",
    why: "The tests import a module that the environment does not have.",
    what: "adds the distribution of the module to the environment",
    detect: (symptoms, facts) => {
      const found = noModule.exec(symptoms.text);
      const name = found?.[1] ?? "";
      // Its own modules are missing when a build has failed, and not because of a package.
      const isOwn = facts.repo.toLowerCase().split("/").at(-1) === name.toLowerCase();
      return found === null || isOwn || removedModules.has(name) ? undefined : found[0];
    },
    variant: ({ text }) => moduleIn(text),
    plan: ({ text }) => {
      const module = moduleIn(text);
      return { packages: { add: [distributionOf[module] ?? module.replaceAll("_", "-").toLowerCase()] } };
    },
  },
  {
    id: "setuptools-distutils",
    layer: "env",
    languages: ["python"],
    risk: "low",
    why: "Since version 60 setuptools replaces distutils by its own, whose version classes warn.",
    what: "setuptools leaves the standard library's distutils in place",
    ...fromText(/distutils Version classes are deprecated/),
    plan: () => ({ env: { SETUPTOOLS_USE_DISTUTILS: "stdlib" } }),
  },
  {
    id: "scm-version",
    layer: "env",
    languages: ["python"],
    risk: "low",
    why: "The version is taken from tags of git, and the checkout has none.",
    what: "names a version for setuptools_scm",
    ...fromText(/setuptools[-_]scm was unable to detect version|LookupError: setuptools[-_]scm[^\n]*/),
    plan: () => ({ env: { SETUPTOOLS_SCM_PRETEND_VERSION: "0.0.0" } }),
  },
  {
    id: "externally-managed",
    layer: "env",
    languages: ["python"],
    risk: "low",
    why: "The distribution forbids pip to change its own packages.",
    what: "lets pip install all the same: only the sandbox changes",
    ...fromText(/error: externally-managed-environment/),
    plan: () => ({ env: { PIP_BREAK_SYSTEM_PACKAGES: "1" } }),
  },
  {
    id: "use-2to3",
    layer: "source",
    languages: ["python"],
    risk: "changes-behaviour",
    why: "Since version 58 setuptools refuses use_2to3, and the sources are those of Python 2.",
    what: "removes use_2to3 from setup.py and runs 2to3 over the sources",
    ...fromText(/error in .* setup command: use_2to3 is invalid/),
    plan: () => ({
      rewrites: [
        ["sed", "-i", "/use_2to3/d", "setup.py"],
        ["python", "-m", "lib2to3", "--write", "--nobackups", "--no-diffs", "."],
      ],
    }),
  },
  {
    id: "warnings-as-errors",
    layer: "command",
    languages: ["python"],
    risk: "low",
    why: "A newer library warns, and the project turns warnings into errors.",
    what: "ignores warnings about what is deprecated, for pytest",
    detect: ({ text, missing, failing }) =>
      missing.length + failing.length === 0
        ? undefined
        : /^E\s+\w*(?:Deprecation|Future|Removed\w+)Warning: [^\n]*/m.exec(text)?.[0].slice(0, 200),
    plan: () => ({ appendArgs: ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"] }),
  },
];
