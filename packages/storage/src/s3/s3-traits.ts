/** In what servers that speak S3 differ, found out by trying. All of them keep conditions on a plain write. */
export interface S3Traits {
  /** How `If-Match` wants its ETag. */
  etagForm: "quoted" | "bare";
  /** Whether the end of a multi-part upload keeps conditions. */
  canCompleteIf: boolean;
  /** Whether a removal keeps conditions. */
  canRemoveIf: boolean;
}

export const matchHeader = (etag: string, form: S3Traits["etagForm"]): string =>
  form === "quoted" ? `"${etag}"` : etag;
