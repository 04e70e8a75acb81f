#ifndef ATOLL_NO_ATTRIBUTES_H
#define ATOLL_NO_ATTRIBUTES_H

/*
 * From now on, this process and all its descendants get EOPNOTSUPP when they read an extended attribute of an open
 * file. Where the kernel has no such filters, nothing changes.
 */
void no_attributes(void);

#endif
