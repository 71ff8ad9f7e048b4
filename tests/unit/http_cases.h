/* Ambiguous HTTP messages, and what a server that takes no chances makes of them. Used by
 * test_net_http_cases.c, whose listener allows heads of 2,048 bytes and bodies of 1,024.
 *
 * `saw` is what the handler got: "METHOD target body" of each request, joined by '|'. `answers` are
 * the status codes sent; interim ones are listed only where they must come. */
#ifndef HTTP_CASES_H
#define HTTP_CASES_H

#include <stddef.h>

enum http_end {
    STAYS,  /* the connection takes another request */
    CLOSES, /* it ends behind the last answer */
    WAITS,  /* the message is not complete: nothing more comes, and nothing ends */
};

struct http_case {
    const char *name;
    const char *bytes;
    size_t len;
    const char *saw;
    const char *answers;
    enum http_end end;
};

#define CASE(name, bytes, saw, answers, end)                                                       \
    {                                                                                              \
        name, bytes, sizeof(bytes) - 1, saw, answers, end                                          \
    }
#define REFUSED(name, bytes) CASE(name, bytes, "", "400", CLOSES)

#define H   "Host: a\r\n"
#define GET "GET /x HTTP/1.1\r\n" H
#define PUT "POST /x HTTP/1.1\r\n" H
#define TE  "Transfer-Encoding: chunked\r\n"
#define LEN "Content-Length: "
/* What would be a second request, if somebody believed it. */
#define SMUGGLED "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
#define X64      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X512     X64 X64 X64 X64 X64 X64 X64 X64
#define X1024    X512 X512
#define FIELDS10 "a:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\ng:\r\nh:\r\ni:\r\nj:\r\n"
#define FIELDS90 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10
#define FIELDS99 FIELDS90 "a:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\ng:\r\nh:\r\ni:\r\n"

static const struct http_case http_cases[] = {
    /* ---- the request line ---- */
    CASE("plain", GET "\r\n", "GET /x ", "200", STAYS),
    CASE("target as sent", "GET /a%2Fb//c/../d?x=%20&y&&z=?/ HTTP/1.1\r\n" H "\r\n",
         "GET /a%2Fb//c/../d?x=%20&y&&z=?/ ", "200", STAYS),
    CASE("empty query", "GET /x? HTTP/1.1\r\n" H "\r\n", "GET /x? ", "200", STAYS),
    CASE("bytes above 0x7f in the target", "GET /\xc3\xbc\xff HTTP/1.1\r\n" H "\r\n",
         "GET /\xc3\xbc\xff ", "200", STAYS),
    CASE("absolute target", "GET http://h:1/y?z HTTP/1.1\r\n" H "\r\n", "GET /y?z ", "200", STAYS),
    CASE("absolute target without a path", "GET HTTP://h HTTP/1.1\r\n" H "\r\n", "GET / ", "200",
         STAYS),
    CASE("asterisk for OPTIONS", "OPTIONS * HTTP/1.1\r\n" H "\r\n", "OPTIONS * ", "200", STAYS),
    REFUSED("asterisk for another method", "GET * HTTP/1.1\r\n" H "\r\n"),
    REFUSED("absolute target with only a query", "GET http://h?/y HTTP/1.1\r\n" H "\r\n"),
    REFUSED("absolute target with a user", "GET http://u:p@h/y HTTP/1.1\r\n" H "\r\n"),
    REFUSED("absolute target without a host", "GET http:///y HTTP/1.1\r\n" H "\r\n"),
    REFUSED("absolute https target", "GET https://h/y HTTP/1.1\r\n" H "\r\n"),
    REFUSED("authority form", "CONNECT h:443 HTTP/1.1\r\n" H "\r\n"),
    REFUSED("relative target", "GET x HTTP/1.1\r\n" H "\r\n"),
    REFUSED("fragment", "GET /x#y HTTP/1.1\r\n" H "\r\n"),
    REFUSED("tab in the target", "GET /x\ty HTTP/1.1\r\n" H "\r\n"),
    REFUSED("blank in the target", "GET /x y HTTP/1.1\r\n" H "\r\n"),
    REFUSED("form feed in the target", "GET /x\fy HTTP/1.1\r\n" H "\r\n"),
    REFUSED("two blanks before the target", "GET  /x HTTP/1.1\r\n" H "\r\n"),
    REFUSED("two blanks behind the target", "GET /x  HTTP/1.1\r\n" H "\r\n"),
    REFUSED("tab behind the method", "GET\t/x HTTP/1.1\r\n" H "\r\n"),
    REFUSED("blank behind the version", "GET /x HTTP/1.1 \r\n" H "\r\n"),
    REFUSED("blank before the method", " GET /x HTTP/1.1\r\n" H "\r\n"),
    REFUSED("no version", "GET /x\r\n" H "\r\n"),
    REFUSED("HTTP/0.9", "GET /x HTTP/0.9\r\n\r\n"),
    REFUSED("HTTP/1.2", "GET /x HTTP/1.2\r\n" H "\r\n"),
    REFUSED("HTTP/2.0", "GET /x HTTP/2.0\r\n" H "\r\n"),
    REFUSED("HTTP/1", "GET /x HTTP/1\r\n" H "\r\n"),
    REFUSED("HTTP/01.1", "GET /x HTTP/01.1\r\n" H "\r\n"),
    REFUSED("http/1.1", "GET /x http/1.1\r\n" H "\r\n"),
    REFUSED("RTSP", "DESCRIBE /x RTSP/1.0\r\n\r\n"),
    REFUSED("ICE", "SOURCE /x ICE/1.0\r\n\r\n"),
    REFUSED("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    REFUSED("unknown method", "NOSUCH /x HTTP/1.1\r\n" H "\r\n"),
    REFUSED("lower case method", "get /x HTTP/1.1\r\n" H "\r\n"),
    REFUSED("TLS on a plain port", "\x16\x03\x01\x02\x01\x01\xfc"),
    REFUSED("NUL first", "\0GET /x HTTP/1.1\r\n" H "\r\n"),
    CASE("blank lines before a request", "\r\n\r\n" GET "\r\n", "GET /x ", "200", STAYS),
    REFUSED("bare LF before a request", "\n" GET "\r\n"),

    /* ---- line ends, folding, controls ---- */
    REFUSED("bare LF everywhere", "GET /x HTTP/1.1\nHost: a\n\n"),
    REFUSED("bare LF behind one field", "GET /x HTTP/1.1\r\nHost: a\nA: b\r\n\r\n"),
    REFUSED("bare LF as the empty line", GET "\n"),
    REFUSED("LF CR LF at the end", GET "A: b\n\r\n"),
    REFUSED("bare CR in a value", PUT "A: b\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    REFUSED("bare CR as a line end", "GET /x HTTP/1.1\rHost: a\r\r"),
    REFUSED("CR CR LF", GET "A: b\r\r\n\r\n"),
    REFUSED("CR in a name", GET "A\rB: c\r\n\r\n"),
    REFUSED("folded value", GET "A: b\r\n c\r\n\r\n"),
    REFUSED("folded with a tab", GET "A: b\r\n\tc\r\n\r\n"),
    REFUSED("folded framing", PUT "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    REFUSED("blank-led first field", "GET /x HTTP/1.1\r\n Host: a\r\n\r\n"),
    REFUSED("line of blanks", GET "  \r\n\r\n"),
    REFUSED("NUL in a value", GET "A: b\0c\r\n\r\n"),
    REFUSED("NUL in a name", GET "A\0: b\r\n\r\n"),
    REFUSED("NUL in the target", "GET /x\0y HTTP/1.1\r\n" H "\r\n"),
    REFUSED("DEL in a value", GET "A: \x7f\r\n\r\n"),
    REFUSED("vertical tab in a value", GET "A: b\vc\r\n\r\n"),
    CASE("tab in a value", GET "A:\tb\tc\t\r\n\r\n", "GET /x ", "200", STAYS),
    CASE("bytes above 0x7f in a value", GET "A: \x80\xff\r\n\r\n", "GET /x ", "200", STAYS),

    /* ---- names ---- */
    REFUSED("blank before the colon", PUT "Content-Length : 5\r\n\r\nhello"),
    REFUSED("tab before the colon", PUT "Content-Length\t: 5\r\n\r\nhello"),
    REFUSED("blank inside a name", PUT "Transfer Encoding: chunked\r\n\r\n0\r\n\r\n"),
    REFUSED("no colon", GET "Nothing\r\n\r\n"),
    REFUSED("empty name", GET ": b\r\n\r\n"),
    REFUSED("byte above 0x7f in a name", GET "\xc3\xbc: b\r\n\r\n"),
    REFUSED("parenthesis in a name", GET "A(b): c\r\n\r\n"),
    REFUSED("quote in a name", GET "\"A\": c\r\n\r\n"),
    CASE("all signs of a token", GET "!#$%&'*+-.^_`|~9: b\r\n\r\n", "GET /x ", "200", STAYS),
    CASE("empty value", GET "A:\r\nB: \r\n\r\n", "GET /x ", "200", STAYS),

    /* ---- Host ---- */
    REFUSED("no Host", "GET /x HTTP/1.1\r\n\r\n"),
    REFUSED("no Host behind an absolute target", "GET http://h/x HTTP/1.1\r\n\r\n"),
    REFUSED("two Hosts", GET "Host: b\r\n\r\n"),
    REFUSED("the same Host twice", GET H "\r\n"),
    REFUSED("empty Host", "GET /x HTTP/1.1\r\nHost:\r\n\r\n"),
    REFUSED("blank in Host", "GET /x HTTP/1.1\r\nHost: a b\r\n\r\n"),
    REFUSED("path in Host", "GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    REFUSED("user in Host", "GET /x HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    REFUSED("list in Host", "GET /x HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    CASE("IPv6 Host", "GET /x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET /x ", "200", STAYS),

    /* ---- Content-Length ---- */
    CASE("sized", PUT LEN "5\r\n\r\nhello", "POST /x hello", "200", STAYS),
    CASE("sized, nothing", PUT LEN "0\r\n\r\n", "POST /x ", "200", STAYS),
    CASE("leading zeros", PUT LEN "0005\r\n\r\nhello", "POST /x hello", "200", STAYS),
    CASE("GET with a body", GET LEN "5\r\n\r\nhello", "GET /x hello", "200", STAYS),
    CASE("HEAD with a body", "HEAD /x HTTP/1.1\r\n" H LEN "5\r\n\r\nhello", "HEAD /x hello", "200",
         STAYS),
    CASE("a request inside a body", PUT LEN "35\r\n\r\n" SMUGGLED, "POST /x " SMUGGLED, "200",
         STAYS),
    CASE("POST without a length", PUT "\r\n", "POST /x ", "200", STAYS),
    CASE("body cut short", PUT LEN "6\r\n\r\nhello", "", "", WAITS),
    REFUSED("two lengths", PUT LEN "5\r\n" LEN "6\r\n\r\nhello!"),
    REFUSED("the same length twice", PUT LEN "5\r\n" LEN "5\r\n\r\nhello"),
    REFUSED("list of lengths", PUT LEN "5, 5\r\n\r\nhello"),
    REFUSED("list of different lengths", PUT LEN "5,6\r\n\r\nhello!"),
    REFUSED("signed length", PUT LEN "+5\r\n\r\nhello"),
    REFUSED("negative length", PUT LEN "-5\r\n\r\nhello"),
    REFUSED("hexadecimal length", PUT LEN "0x5\r\n\r\nhello"),
    REFUSED("length with a fraction", PUT LEN "5.0\r\n\r\nhello"),
    REFUSED("length with a blank", PUT LEN "5 0\r\n\r\nhello"),
    REFUSED("length with a semicolon", PUT LEN "5;\r\n\r\nhello"),
    REFUSED("quoted length", PUT LEN "\"5\"\r\n\r\nhello"),
    REFUSED("empty length", PUT LEN "\r\n\r\nhello"),
    REFUSED("length in words", PUT LEN "five\r\n\r\nhello"),
    REFUSED("length of 2^64", PUT LEN "18446744073709551616\r\n\r\n"),
    REFUSED("length of 2^64 and 5", PUT LEN "18446744073709551621\r\n\r\nhello"),

    /* ---- Transfer-Encoding ---- */
    CASE("chunked", PUT TE "\r\n5\r\nhello\r\n0\r\n\r\n", "POST /x hello", "200", STAYS),
    CASE("chunked, nothing", PUT TE "\r\n0\r\n\r\n", "POST /x ", "200", STAYS),
    CASE("any case", PUT "transfer-ENCODING: ChunKed\r\n\r\n1\r\na\r\n0\r\n\r\n", "POST /x a",
         "200", STAYS),
    CASE("blanks around the coding", PUT "Transfer-Encoding: \t chunked \t\r\n\r\n0\r\n\r\n",
         "POST /x ", "200", STAYS),
    REFUSED("length, then coding", PUT LEN "5\r\n" TE "\r\n0\r\n\r\n" SMUGGLED),
    REFUSED("coding, then length", PUT TE LEN "35\r\n\r\n0\r\n\r\n" SMUGGLED),
    REFUSED("coding twice", PUT TE TE "\r\n0\r\n\r\n"),
    REFUSED("chunked in a list twice", PUT "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    REFUSED("another coding before", PUT "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    REFUSED("another coding behind", PUT "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    REFUSED("another coding alone", PUT "Transfer-Encoding: gzip\r\n\r\nhello"),
    REFUSED("identity", PUT "Transfer-Encoding: identity\r\n" LEN "5\r\n\r\nhello"),
    REFUSED("empty coding", PUT "Transfer-Encoding:\r\n" LEN "5\r\n\r\nhello"),
    REFUSED("xchunked", PUT "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    REFUSED("chunked with a parameter", PUT "Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n"),
    REFUSED("quoted coding", PUT "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    REFUSED("vertical tab before the coding", PUT "Transfer-Encoding:\vchunked\r\n\r\n0\r\n\r\n"),
    REFUSED("coding in HTTP/1.0", "POST /x HTTP/1.0\r\n" TE "\r\n0\r\n\r\n"),

    /* ---- chunks ---- */
    CASE("sizes in both cases, with zeros",
         PUT TE "\r\n00a\r\n0123456789\r\nA\r\n0123456789\r\n"
                "000\r\n\r\n",
         "POST /x 01234567890123456789", "200", STAYS),
    CASE("extensions", PUT TE "\r\n5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n", "POST /x hello", "200",
         STAYS),
    CASE("trailers", PUT TE "\r\n0\r\nA: b\r\nContent-Length: 9\r\n\r\n", "POST /x ", "200", STAYS),
    CASE("a chunk of CR LF", PUT TE "\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n", "POST /x \r\n\r\n", "200",
         STAYS),
    CASE("the last chunk is missing", PUT TE "\r\n5\r\nhello\r\n", "", "", WAITS),
    CASE("the last CR LF is missing", PUT TE "\r\n0\r\n", "", "", WAITS),
    REFUSED("bare LF behind the size", PUT TE "\r\n5\nhello\r\n0\r\n\r\n"),
    REFUSED("bare CR behind the size", PUT TE "\r\n5\rhello\r\n0\r\n\r\n"),
    REFUSED("bare LF behind the data", PUT TE "\r\n5\r\nhello\n0\r\n\r\n"),
    REFUSED("no line end behind the data", PUT TE "\r\n5\r\nhello0\r\n\r\n"),
    REFUSED("blank behind the size", PUT TE "\r\n5 \r\nhello\r\n0\r\n\r\n"),
    REFUSED("blank before the size", PUT TE "\r\n 5\r\nhello\r\n0\r\n\r\n"),
    REFUSED("0x before the size", PUT TE "\r\n0x5\r\nhello\r\n0\r\n\r\n"),
    REFUSED("sign before the size", PUT TE "\r\n+5\r\nhello\r\n0\r\n\r\n"),
    REFUSED("negative size", PUT TE "\r\n-1\r\nhello\r\n0\r\n\r\n"),
    REFUSED("no size", PUT TE "\r\n\r\nhello\r\n0\r\n\r\n"),
    REFUSED("size that is no number", PUT TE "\r\nG\r\nhello\r\n0\r\n\r\n"),
    REFUSED("size of 2^64", PUT TE "\r\n10000000000000000\r\nhello"),
    REFUSED("size of 2^64 and 5", PUT TE "\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"),
    REFUSED("a thousand zeros", PUT TE "\r\n0000000000000000005\r\nhello\r\n0\r\n\r\n"),
    REFUSED("bare LF in an extension", PUT TE "\r\n5;a\nb\r\nhello\r\n0\r\n\r\n"),
    REFUSED("bare CR in an extension", PUT TE "\r\n5;a\rb\r\nhello\r\n0\r\n\r\n"),
    REFUSED("NUL in an extension", PUT TE "\r\n5;a\0b\r\nhello\r\n0\r\n\r\n"),
    REFUSED("extension without end", PUT TE "\r\n5;" X1024 "x"),
    REFUSED("folded trailer", PUT TE "\r\n0\r\nA: b\r\n c\r\n\r\n"),
    REFUSED("bare LF in the trailers", PUT TE "\r\n0\r\nA: b\nC: d\r\n\r\n"),
    REFUSED("bare LF as the end", PUT TE "\r\n0\r\n\n"),
    REFUSED("trailers without end",
            PUT TE "\r\n0\r\nA: " X1024 X1024 X1024 X1024 X1024 X1024 X1024 X1024 "x"),

    /* ---- several requests ---- */
    CASE("two GETs", GET "\r\n" GET "\r\n", "GET /x |GET /x ", "200 200", STAYS),
    CASE("sized, then a GET", PUT LEN "5\r\n\r\nhello" GET "\r\n", "POST /x hello|GET /x ",
         "200 200", STAYS),
    CASE("chunked, then a GET", PUT TE "\r\n5\r\nhello\r\n0\r\n\r\n" GET "\r\n",
         "POST /x hello|GET /x ", "200 200", STAYS),
    CASE("chunked twice, then a GET",
         PUT TE "\r\n1\r\na\r\n0\r\n\r\n" PUT TE "\r\n1\r\nb\r\n0\r\n\r\n" GET "\r\n",
         "POST /x a|POST /x b|GET /x ", "200 200 200", STAYS),
    CASE("no length, and more", PUT "\r\nhello", "POST /x ", "200", WAITS),
    CASE("blank line behind a body", PUT LEN "5\r\n\r\nhello\r\n" GET "\r\n",
         "POST /x hello|GET /x ", "200 200", STAYS),
    CASE("the second is malformed", GET "\r\nGET /x\r\n\r\n", "GET /x ", "200 400", CLOSES),
    CASE("nothing behind a malformed one", PUT LEN "x\r\n\r\n" GET "\r\n", "", "400", CLOSES),
    CASE("nothing behind close", GET "Connection: close\r\n\r\n" GET "\r\n", "GET /x ", "200",
         CLOSES),

    /* ---- persistence ---- */
    CASE("HTTP/1.0", "GET /x HTTP/1.0\r\n\r\n", "GET /x ", "200", CLOSES),
    CASE("HTTP/1.0 that stays", "GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET /x ",
         "200", STAYS),
    CASE("HTTP/1.0 with a length", "POST /x HTTP/1.0\r\n" LEN "5\r\n\r\nhello", "POST /x hello",
         "200", CLOSES),
    CASE("close among others", GET "Connection: x, Close\r\n\r\n", "GET /x ", "200", CLOSES),
    CASE("close and keep-alive", GET "Connection: close\r\nConnection: keep-alive\r\n\r\n",
         "GET /x ", "200", CLOSES),
    CASE("HTTP/1.0 with both", "GET /x HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
         "GET /x ", "200", CLOSES),
    CASE("upgrade is not taken", GET "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", "GET /x ",
         "200", STAYS),
    CASE("upgrade with a body",
         PUT "Upgrade: websocket\r\nConnection: Upgrade\r\n" LEN "5\r\n\r\nhello", "POST /x hello",
         "200", STAYS),

    /* ---- Expect ---- */
    CASE("the body is asked for", PUT "Expect: 100-continue\r\n" LEN "5\r\n\r\n", "", "100", WAITS),
    CASE("the body was not waited for", PUT "Expect: 100-Continue\r\n" LEN "5\r\n\r\nhello",
         "POST /x hello", "200", STAYS),
    CASE("nothing to ask for", PUT "Expect: 100-continue\r\n" LEN "0\r\n\r\n", "POST /x ", "200",
         STAYS),
    CASE("HTTP/1.0 is not asked", "POST /x HTTP/1.0\r\nExpect: 100-continue\r\n" LEN "5\r\n\r\n",
         "", "", WAITS),

    /* ---- limits ---- */
    CASE("head over the limit", GET "A: " X1024 X1024 "\r\n\r\n", "", "431", CLOSES),
    CASE("head without end", GET "A: " X1024 X1024, "", "431", CLOSES),
    CASE("target over the limit", "GET /" X1024 X1024 " HTTP/1.1\r\n" H "\r\n", "", "431", CLOSES),
    CASE("a hundred fields", GET FIELDS99 "\r\n", "GET /x ", "200", STAYS),
    CASE("a hundred and one", GET FIELDS99 "j:\r\n\r\n", "", "431", CLOSES),
    CASE("body at the limit", PUT LEN "1024\r\n\r\n" X1024, "POST /x " X1024, "200", STAYS),
    CASE("body over the limit", PUT LEN "1025\r\n\r\n" X1024 "x", "", "413", CLOSES),
    CASE("body far over the limit", PUT LEN "999999999999999999\r\n\r\n", "", "413", CLOSES),
    CASE("body over the limit, expected", PUT "Expect: 100-continue\r\n" LEN "1025\r\n\r\n", "",
         "413", CLOSES),
    CASE("chunks at the limit", PUT TE "\r\n400\r\n" X1024 "\r\n0\r\n\r\n", "POST /x " X1024, "200",
         STAYS),
    CASE("chunks over the limit", PUT TE "\r\n200\r\n" X512 "\r\n201\r\n" X512 "x\r\n0\r\n\r\n", "",
         "413", CLOSES),
};

#endif
