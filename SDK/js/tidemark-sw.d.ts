/** Types of tidemark-sw.js, which has the documentation. The script exports nothing: it adds listeners. */

/** The value of `self.tidemark`, set before the script is loaded. */
export interface TidemarkWorkerOptions {
  /** Address of the gateway; by default the worker's own origin. */
  url?: string
  /** The ticket in a push's JSON; by default its field `ticket`. */
  ticketOf?: (data: any) => string | undefined
}
