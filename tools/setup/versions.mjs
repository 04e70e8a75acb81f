/**
 * The releases of Node that the tools of this checkout run on, in the form of `engines`: releases with long support,
 * from the version on that can `require` ES modules.
 */
export const supportedNode = "^20.19 || ^22.12 || >=24";

export const supportedNodeInWords = "Node 20 from 20.19 on, 22 from 22.12 on, or 24 and newer";

/** The first runsc with the systrap platform, a working statx and a checkpoint that holds an overlay. */
export const minimumRunscDate = 20240729;

/** @param {string} version as in process.versions.node */
export function isNodeSupported(version) {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return supportedNode.split(" || ").some((range) => {
    const [wantedMajor = 0, wantedMinor = 0] = range.replace(/^\D+/, "").split(".").map(Number);
    if (major === wantedMajor) return minor >= wantedMinor;
    return range.startsWith(">=") && major > wantedMajor;
  });
}

/**
 * Returns the release date in a runsc version, which has the form "release-20240729.0" or, in Debian,
 * "0.0~20240729.0-4~bpo12+2".
 *
 * @param {string} text
 * @returns {number | undefined} as YYYYMMDD; undefined for a build that is not a release
 */
export function parseRunscDate(text) {
  const match = /(?:release-|\d~)(\d{8})\b/.exec(text);
  return match === null ? undefined : Number(match[1]);
}

/**
 * Returns the versions of a package that apt can install, in apt's order of preference, from the output of
 * "apt-cache policy <package>". A version that is installed and that no source offers does not count.
 *
 * @param {string} policy
 * @returns {string[]}
 */
export function parseOfferedVersions(policy) {
  /** @type {string[]} */
  const offered = [];
  let version = "";
  for (const line of policy.split("\n")) {
    const head = /^ (?:\*\*\*|   ) (\S+) -?\d+$/.exec(line);
    if (head?.[1] !== undefined) {
      version = head[1];
    } else if (/^ {8,}-?\d+ /.test(line) && !line.includes("/var/lib/dpkg/status") && version !== "") {
      if (!offered.includes(version)) offered.push(version);
    }
  }
  return offered;
}

/**
 * @param {string} policy
 * @returns {string | undefined} the newest offered runsc that is new enough
 */
export function pickRunscVersion(policy) {
  /** @param {string} version */
  const dateOf = (version) => parseRunscDate(version) ?? 0;
  return parseOfferedVersions(policy)
    .filter((version) => dateOf(version) >= minimumRunscDate)
    .toSorted((a, b) => dateOf(b) - dateOf(a))[0];
}
