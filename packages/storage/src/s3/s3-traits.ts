/** How servers that speak S3 differ, found out by trying. All of them honour conditions on a plain write. */
export interface S3Traits {
  /** The form in which `If-Match` expects its ETag. */
  etagForm: "quoted" | "bare";
  /** Whether the end of a multi-part upload honours conditions. */
  canCompleteIf: boolean;
  /** Whether a removal honours conditions. */
  canRemoveIf: boolean;
}

export const matchHeader = (etag: string, form: S3Traits["etagForm"]): string =>
  form === "quoted" ? `"${etag}"` : etag;
