import manifest from "../package.json" with { type: "json" };

/** Part of every key: what another version has made is not taken for this one's. */
export const { version } = manifest;
