/** Distributions whose Debian package is not `python3-<name>`. */
const debianName: Readonly<Record<string, string>> = {
  attrs: "python3-attr",
  beautifulsoup4: "python3-bs4",
  cython: "cython3",
  dateutil: "python3-dateutil",
  gitpython: "python3-git",
  "grpcio-tools": "python3-grpc-tools",
  "jaraco-functools": "python3-jaraco.functools",
  "mypy-extensions": "python3-mypy-extensions",
  netcdf4: "python3-netcdf4",
  pillow: "python3-pil",
  protobuf: "python3-protobuf",
  pycryptodome: "python3-pycryptodome",
  pyjwt: "python3-jwt",
  pyserial: "python3-serial",
  pysocks: "python3-socks",
  "pytest-asyncio": "python3-pytest-asyncio",
  pytz: "python3-tz",
  pyyaml: "python3-yaml",
  pyzmq: "python3-zmq",
  "ruamel-yaml": "python3-ruamel.yaml",
  "scikit-image": "python3-skimage",
  "scikit-learn": "python3-sklearn",
  sphinx: "python3-sphinx",
  tables: "python3-tables",
  "zope-interface": "python3-zope.interface",
};

/** The name under which distributions are compared: lower case, with `-` for every separator. */
export const normalizeName = (name: string): string => name.toLowerCase().replaceAll(/[-_.]+/g, "-");

/** Names that the package of a distribution may have in Debian, the likeliest first. */
export function debianNames(distribution: string): string[] {
  const name = normalizeName(distribution);
  const known = debianName[name];
  const bare = name.replace(/^python-/, "");
  const dotted = name.replace("-", ".");
  return [
    ...new Set([...(known === undefined ? [] : [known]), `python3-${name}`, `python3-${bare}`, `python3-${dotted}`]),
  ];
}
