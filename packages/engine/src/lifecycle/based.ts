/** An absent base is no field at all. */
export function based(base: number | undefined): { base?: number } {
  return base === undefined ? {} : { base };
}
