/** The port where the guest's proxy listens on the sandbox's loopback. */
export const proxyPort = 3128;

/**
 * Returns the variables with which programs inside find the proxy: there is no other way out, and no name server. curl,
 * git, pip, apt, wget, Go, Ruby and Rust read the common variables, some in capitals and some not; npm and Yarn have
 * their own, and Node's `fetch` needs a variable that makes it read them.
 *
 * `ALL_PROXY` is an HTTP proxy although the same port speaks SOCKS5: Python's httpx refuses to start when it finds a
 * SOCKS proxy and not the module for it, even for addresses that have another proxy.
 */
export function proxyEnvironment(port: number = proxyPort): Record<string, string> {
  const proxy = `http://127.0.0.1:${port}`;
  const inside = "localhost,127.0.0.1,::1";
  return {
    HTTP_PROXY: proxy,
    http_proxy: proxy,
    HTTPS_PROXY: proxy,
    https_proxy: proxy,
    ALL_PROXY: proxy,
    all_proxy: proxy,
    NO_PROXY: inside,
    no_proxy: inside,
    npm_config_proxy: proxy,
    npm_config_https_proxy: proxy,
    npm_config_noproxy: inside,
    YARN_HTTP_PROXY: proxy,
    YARN_HTTPS_PROXY: proxy,
    NODE_USE_ENV_PROXY: "1",
  };
}
